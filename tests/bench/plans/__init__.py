"""What a plan costs, beside Kafka's tool, MirrorMaker's translation, scripts, and the bare requests."""
