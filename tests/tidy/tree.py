"""What the house-rule tests look at: the project's own files."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "runtime", "flowql")


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


def modules(*packages: str) -> list[Path]:
    """Python files of the given packages."""
    return [p for p in own_files() if p.suffix == ".py" and p.parts[0] in packages]
