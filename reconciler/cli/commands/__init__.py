"""The commands, one module each.

Each module has HELP, ``add_arguments`` and ``run``; ``cli.main`` finds it by its name and loads no other.
"""
