"""Reading a destination's log: Kafka, and an in-memory log that behaves like it."""
