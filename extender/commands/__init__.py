"""One module a command: what it asks of the command line, and what it does.

Each has ``arguments(parser)`` and ``run(args) -> int`` and imports what it needs when it runs.
"""
