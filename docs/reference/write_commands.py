"""`commands.md`, from the program itself. See `generate.py`."""

from __future__ import annotations

from typing import Any

from flowql.cli.app import commands_of, program

HEAD = """\
# Commands

What `flowql` can be told, written by `docs/reference/generate.py` from the program; `flowql COMMAND --help` says the same.

Options that all commands share may stand before or after the verb. Exit codes: 0 done, 1 failed, 2 used wrongly, 3 (`status`) the instance runs and does not answer, 130 interrupted.
`flowql --install-completion` teaches the shell to complete commands and options.
"""


def pages() -> dict[str, str]:
    return {"commands.md": _text()}


def _text() -> str:
    """The whole page."""
    found = list(commands_of(program()))
    index = " · ".join(f"[{name}](#flowql-{name.replace(' ', '-')})" for name, _ in found)
    return "\n".join([HEAD, index + "\n", *(_section(f"flowql {name}", command) for name, command in found)])


def _section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    parts = [f"## {name}", "", *_paragraphs(command.help), "", "```", _usage(command, context), "```", ""]
    records = [p.get_help_record(context) for p in command.params if "--help" not in p.opts]
    rows = [(left.replace("|", "\\|"), _cell(right)) for left, right in filter(None, records)]
    if rows:
        parts += ["| | |", "|---|---|", *(f"| `{left}` | {right} |" for left, right in rows), ""]
    return "\n".join(parts)


def _paragraphs(text: str) -> list[str]:
    """Blocks that are to be typed as code, others as text."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("\b"):
            lines += ["```", *(line.strip() for line in block.splitlines()[1:]), "```", ""]
        else:
            lines += [_cell(block), ""]
    return lines[:-1]


def _usage(command: Any, context: Any) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
