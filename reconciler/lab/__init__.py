"""Real clusters on this machine, for ``reconciler demo`` and for the tests: the one place that starts servers."""
