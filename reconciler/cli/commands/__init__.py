"""The commands, one module each, in folders by the time when they are needed, as the overview of the help lists them.

Each module has HELP, ``add_arguments`` and ``run``; ``cli.main`` finds it by its name and loads no other.
"""
