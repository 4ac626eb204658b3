"""Worlds whose jobs stored offsets without anchors, and what each job is owed there."""
