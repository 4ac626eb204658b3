"""Real clusters on this machine, for the demo, ``reconciler lab`` and the tests: the only room that starts servers.

In: jars from ``artifacts`` and a folder. Out: running brokers and MirrorMakers that end with this process, or, for
``reconciler lab``, when they are taken down.
"""
