"""The command line: one module per command.

In: the words of a command line, and the terminal's settings. Out: results on stdout, messages on stderr, the files that
were asked for, and an exit code. ``main`` parses the words and runs one of ``commands``; ``terminal`` and ``page`` show
results. The work itself is done in other rooms.
"""
