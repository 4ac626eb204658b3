"""Real clusters on this machine, for ``reconciler demo`` and for the tests: the only room that starts servers.

In: jars from ``artifacts`` and a folder. Out: running brokers and MirrorMakers that end with this process.
"""
