"""The models: a file each below `models`, a SELECT as dbt compiles it, named as its file is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

FOLDER = Path(__file__).parent / "models"


@dataclass(frozen=True, slots=True)
class Model:
    """path: below `models`. A test has rows only where the data breaks a rule."""

    path: str
    sql: str

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")


def load() -> dict[str, Model]:
    """The models by name, each after those that it reads."""
    files = sorted(FOLDER.rglob("*.sql"))
    found = {f.stem: Model(str(f.relative_to(FOLDER)), f.read_text().strip()) for f in files}
    assert len(found) == len(files), "two models have one name"
    reads = {n: sorted(found.keys() & set(re.findall(r"\w+", m.sql)) - {n}) for n, m in found.items()}
    return {n: found[n] for n in TopologicalSorter(reads).static_order()}
