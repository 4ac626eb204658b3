"""What a flowlet's developer overrode: the functions that its store's address names."""

import json


def message_id(record):
    """The number in the payload."""
    return json.loads(record.value)["id"]


def store_key(topic, partition):
    """As CDAP's tracker did: its own name in front."""
    return f"_Tracker:{topic}:{partition}"


def find(topic, partition, number):
    """Where the mirror put a message: it began with number 20."""
    return number - 20
