"""The lists of events, metrics and columns are those of the code."""

from __future__ import annotations

import re

from flowql.cli.monitoring.columns import COLUMNS
from tests.docs.tour import ROOT, Shell, blocks, commands

PAGE = (ROOT / "docs" / "guide" / "monitoring.md").read_text(encoding="utf-8")
EVENTS = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
SAY = re.compile(r'say\(\s*\w+,\s*("[a-z_.]+"(?: if .*? else "[a-z_.]+")?)')


def test_every_event_is_listed() -> None:
    said = {
        event
        for package in ("runtime", "flowql")  # rglob does not follow the links in flowql
        for file in (ROOT / package).rglob("*.py")
        for found in SAY.findall(file.read_text(encoding="utf-8"))
        for event in re.findall(r'"([a-z_.]+)"', found)
    }
    assert len(said) > 10
    listed = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+|dead_letters)`", EVENTS))
    assert said - {"commit"} <= listed, "commit is said at level debug only"


def test_every_column_is_explained() -> None:
    explained = {h for row in re.findall(r"^\| ([A-Z/0-9, ]+) \|", PAGE, re.MULTILINE) for h in row.split(", ")}
    assert {c.heading for c in COLUMNS} - explained == {"QUERY", "PRIORITY", "WEIGHT"}
    assert explained <= {c.heading for c in COLUMNS}


def test_every_metric_is_listed(shell: Shell) -> None:
    (block,) = blocks(METRICS, "console")
    ((command, shown),) = commands(block)
    assert shell.type(command) == shown
