"""Kafka's client: connections made alike, errors as sentences, reading a cluster's log; the log in memory beside it.

In: addresses, client settings, probes. Out: answers to probes, or errors that say whose move it is.
"""
