"""Kafka's client library in this product's words: clients that are made the same way, and errors as sentences."""
