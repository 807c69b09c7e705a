"""The part of a target that is about what questions may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.config.reader import Item
from flowql.config.shape import Duration, Key, Record, Size, Whole

if TYPE_CHECKING:
    from flowql.compiler.dialect.parser import DialectName

AT_ONCE_MAX = 16  # an instance has threads for so many beside everything else that it answers
QUESTIONS = Record(
    "questions",
    {
        "rows": Key(Whole(1), "Maximum rows of an answer; default: 100,000,000."),
        "time": Key(Duration(), "Maximum time until an answer is complete; default: 10 minutes."),
        "at_once": Key(
            Whole(1, AT_ONCE_MAX), "How many are answered at the same time, 16 at most; further ones are rejected."
        ),
        "spill": Key(
            Size(),
            "Maximum space on disk for data that exceeds their share of `memory`; default: 4 GB, and at most half of the free space.",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class QuestionsSettings:
    """What questions may take beside their share of memory: rows of one answer, its time, how many are answered at the same time, and
    bytes on disk of all together. dialect: of the project, which questions are written in.
    """

    rows: int = 100_000_000
    time_ms: int = 600_000
    at_once: int = AT_ONCE_MAX
    spill_bytes: int = 4 << 30
    dialect: DialectName = "ksql"


def questions_settings(given: Mapping[str, Item]) -> QuestionsSettings:
    """What the checked values say."""
    names = {"time": "time_ms", "spill": "spill_bytes"}
    return QuestionsSettings(**{names.get(k, k): i.value for k, i in given.items()})
