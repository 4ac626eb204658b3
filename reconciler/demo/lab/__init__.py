"""Real clusters on this machine, for the demo and the tests: the only room that starts servers.

In: jars from ``artifacts`` and a folder. Out: a running broker or MirrorMaker. It ends with this process unless it is
detached.
"""
