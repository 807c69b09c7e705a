"""The rows that `flowql test` finds in views: `--update` writes them into a test whose expectation is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from tests.one_meaning.answers import Answer, of_values

WRONG = "    - {}\n"  # any row
_MICROSECONDS = 10**14  # a number of milliseconds is less for thousands of years


def tested(folder: Path, inserts: Sequence[str], views: Mapping[str, Answer]) -> dict[str, Answer]:
    """By view. views: of a project in a folder, with the answers that say which types their columns have."""
    (folder / "tests").mkdir()
    file = folder / "tests" / "all.yaml"
    expected = "".join(f"  {name}:\n{WRONG * (len(a.rows) + 1)}" for name, a in views.items())
    when = yaml.safe_dump(";\n".join(inserts) + ";", default_style='"', width=10**9)
    file.write_text(f"name: all\nwhen: {when}expect:\n{expected}")
    command = [sys.executable, "-m", "flowql", "test", "-p", str(folder), "--update", "--splits", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = yaml.safe_load(file.read_text())["expect"]
    except yaml.YAMLError as error:
        raise AssertionError(f"flowql test --update wrote no YAML: {done.stdout[-500:]}") from error
    return {name: _answer(found.get(name) or [], views[name].types) for name in views}


def _answer(rows: Sequence[Mapping[str, Any]], types: Sequence[str]) -> Answer:
    if any(not row for row in rows):
        return Answer("refused", text="FQ0000 nothing was written into the test")
    return of_values([[_value(v, t) for v, t in zip(row.values(), types, strict=False)] for row in rows])


def _value(v: Any, type_: str) -> Any:
    """What YAML has for a value of a type: moments are numbers, and so are decimals."""
    if v is None:
        return None
    if type_.startswith("list<"):
        return [_value(x, type_.split(": ", 1)[1].removesuffix(">")) for x in v]
    if type_.startswith("timestamp"):
        return ("at", v if "[us" in type_ and ("tz=" not in type_ or abs(v) >= _MICROSECONDS) else v * 1000)
    if type_.startswith("date"):
        return ("day", v)
    if type_.startswith("decimal"):
        return Decimal(str(v))
    return float(v) if type_ == "double" else v
