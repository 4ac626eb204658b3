"""Real servers that only tests start: each is started, stopped and killed in the same way (``server``)."""
