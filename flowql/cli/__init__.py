"""The command line: one file per verb, each with a `command`. Entry point: `main`. Everything a verb does is elsewhere."""

from flowql.cli.app import main

__all__ = ["main"]
