"""The offsets that a group committed in Kafka (``kafka-group:``)."""
