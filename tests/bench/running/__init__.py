"""What runs all year: recording, the watcher, a hook's start, the mirror's own offsets."""
