"""What the house-rule tests look at: the project's own files."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "runtime", "flowql")  # what is installed
CODE = (*PACKAGES, "benchmarks")


@cache
def own_files() -> tuple[Path, ...]:
    """Files that are tracked, or would be when added; relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted({name for name in listed.stdout.split("\0") if name})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


@cache
def text_of(path: Path) -> str | None:
    """The text of a file, None when it is not text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of a file of text: its lines with their numbers, in a notebook those of all strings with the ids of their cells."""
    text = text_of(path) or ""
    if path.suffix != ".ipynb":
        yield from ((str(number), line) for number, line in enumerate(text.splitlines(), 1))
        return
    notebook = json.loads(text)
    cells = notebook.pop("cells")
    for place, part in [("notebook", notebook), *((f"cell {cell['id']}", cell) for cell in cells)]:
        yield from ((place, line) for found in _strings(part) for line in found.splitlines())


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def modules(*packages: str) -> list[Path]:
    """Python files of the given packages."""
    return [p for p in own_files() if p.suffix == ".py" and p.parts[0] in packages]
