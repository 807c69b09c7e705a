"""`flowql shell`: reads and answers statements one after the other. Entry point: `command`; only `prompt` knows the terminal."""

from flowql.cli.shell.command import command

__all__ = ["command"]
