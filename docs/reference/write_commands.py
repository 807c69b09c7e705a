"""`commands.md`, and a page for each group of commands, from the program itself. See `generate.py`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from flowql.cli.app import commands_of, program

GROUPS = {
    "Write a project": ("init", "validate", "explain", "lineage", "compile", "dev", "test", "import", "export"),
    "Run and deploy": (
        "run",
        "plan",
        "deploy",
        "serve",
        "stop",
        "diff",
        "promote",
        "abandon",
        "deployments",
        "backfill",
    ),
    "Query and change rows": ("query", "exec", "shell", "subscribe", "state"),
    "Topics and dead letters": ("topic", "dlq"),
    "Monitor": ("status", "top", "logs", "pause", "resume", "priority", "metrics"),
    "Check, back up and clean up": ("doctor", "backup", "restore", "verify", "log", "app"),
    "Kafka, Spark and benchmarks": ("kafka", "spark", "bench"),
}
SHARED_MIN = 3  # an option that so many commands have is described once, on the index
HEAD = """\
# Commands

`flowql COMMAND --help` shows these descriptions. Exit codes: 0 done, 1 failed, 2 wrong usage (`plan`: changes), 3 (`status`) the instance runs and does not
answer, 130 interrupted. `flowql --install-completion` lets the shell complete commands and options.
"""
SHARED = """\
## Shared options

Most commands have `-p`, `-t`, `-o` and `--var`. "Also" names other shared options, and options
that an earlier section of the page describes. Shared options may precede the command.
"""
USUAL = ("-p", "-t", "-o", "--var")
PLAIN = {"int range": "N", "int": "N", "float range": "X", "str": "TEXT", "path": "PATH"}  # what `--help` calls a value
BOUNDS = re.compile(r" \[(required|[\d.<=]*x[\d.<>=]*)\]|; [\d.<=]*x[\d.<>=]*(?=\])")
Command = tuple[str, Any]


def pages() -> dict[str, str]:
    """The index, and the pages of the groups."""
    found = list(commands_of(program()))
    shared = {record for record, n in Counter(r for _, c in found for r in _records(c)).items() if n >= SHARED_MIN}
    groups = {title: [c for c in found if c[0].split()[0] in first] for title, first in GROUPS.items()}
    assert sorted(c[0] for group in groups.values() for c in group) == sorted(c[0] for c in found), "no group"
    return {
        "commands.md": "\n".join([HEAD, *_index(groups), "", SHARED, *_options(sorted(shared)), ""]),
        **{f"commands/{_file(title)}": _page(title, group, shared) for title, group in groups.items()},
    }


def _index(groups: dict[str, list[Command]]) -> list[str]:
    """A line for each group; the subcommands of a command stand in brackets."""
    lines = []
    for title, group in groups.items():
        verbs: dict[str, list[str]] = {}
        for name, _ in group:
            verb, _, rest = name.partition(" ")
            verbs.setdefault(verb, []).extend([f"`{rest}`"] if rest else [])
        shown = (f"`{verb}`" + (f" ({', '.join(rest)})" if rest else "") for verb, rest in verbs.items())
        lines.append(f"- [{title}](commands/{_file(title)}): {', '.join(shown)}")
    return lines


def _file(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()) + ".md"


def _page(title: str, group: list[Command], shared: set[tuple[str, str]]) -> str:
    lines, described = [f"# {title}", ""], set(shared)
    for name, command in group:
        lines += _section(name, command, described)
        described |= {r for r in _records(command) if r[0].startswith("-")}
    return "\n".join(lines)


def _section(name: str, command: Any, described: set[tuple[str, str]]) -> list[str]:
    """described: options that the index or an earlier section describes."""
    records = _records(command)
    own = _options([r for r in records if r not in described])
    also = ", ".join(f"`{o}`" for r in records if r in described and (o := _first(r))[0] == "-" and o not in USUAL)
    return [
        f"## flowql {name}",
        "",
        *_paragraphs(command.help, f"flowql {name}"),
        "",
        *own,
        *([""] if own else []),
        *([f"Also: {also}.", ""] if also else []),
    ]


def _first(record: tuple[str, str]) -> str:
    """The first spelling of an option, or the name of an argument."""
    return record[0].split(", ")[0].split()[0]


def _records(command: Any) -> list[tuple[str, str]]:
    """Name and description of each argument and option, as `--help` shows them, without bounds (an error names them)."""
    context = command.make_context("flowql", [], resilient_parsing=True)
    found = filter(None, (p.get_help_record(context) for p in command.params if "--help" not in p.opts))
    return [(left, BOUNDS.sub("", right)) for left, right in found]


def _options(records: list[tuple[str, str]]) -> list[str]:
    return [
        f"- `{re.sub('<([a-z ]+)>', lambda m: PLAIN.get(m[1], m[0]), left)}`: {_text(right)}" for left, right in records
    ]


def _paragraphs(text: str, command: str) -> list[str]:
    """Blocks of commands and examples as code, others as text. An example that is only the command is left out: the heading shows it."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        typed = [line.strip() for line in block.splitlines()[1:]] if block.startswith("\b") else []
        if example := re.fullmatch(r"Examples?:\s+(.*)", block.strip(), re.DOTALL):
            typed = [" ".join(example[1].split())]
        if [re.split(r"\s{2,}", line)[0] for line in typed] == [command]:
            continue
        if typed and lines[-2:] == ["```", ""]:
            lines[-2:] = [*typed, "```", ""]
        else:
            lines += ["```", *typed, "```", ""] if typed else [_text(block), ""]
    return lines[:-1]


def _text(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")
