"""Which process of pytest-xdist runs which files: `--dist loadfile`, except that one process runs all files that need Spark, and one all
that need Kafka. A second Java with Spark, or a second broker, takes as much processor time as dozens of tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
SERVICES = ("spark", "kafka")
_MARKS = re.compile(rf"\bmark\.({'|'.join(SERVICES)})\b")


@cache
def service_of(file: str) -> str | None:
    """The first of SERVICES that tests of a file are marked with."""
    marks = set(_MARKS.findall((ROOT / file).read_text(encoding="utf-8")))
    return next((name for name in SERVICES if name in marks), None)


class Dealing(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return service_of(file) or file
