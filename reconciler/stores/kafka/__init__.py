"""Offset stores in Kafka: a group's commits (``kafka-group:``) and a compacted topic (``kafka-topic:NAME``)."""
