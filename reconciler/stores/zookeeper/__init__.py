"""Offsets that jobs keep in ZooKeeper, with their anchors in znodes beside them: everything about ZooKeeper."""
