"""Names close to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, candidates: Iterable[str], *, count_max: int = 1) -> list[str]:
    """The candidates nearest to `name`, best first, ignoring case; none when nothing is near.

    >>> closest("ODERS", ["ORDERS", "SHIPMENTS"])
    ['ORDERS']
    """
    spellings: dict[str, str] = {}
    for candidate in candidates:
        spellings.setdefault(candidate.lower(), candidate)
    near = difflib.get_close_matches(name.lower(), spellings, n=count_max, cutoff=0.6)
    return [spellings[key] for key in near]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The help text naming the nearest candidate, or an empty text.

    >>> did_you_mean("vlaue_format", ["KAFKA_TOPIC", "VALUE_FORMAT"])
    'did you mean `VALUE_FORMAT`?'
    """
    near = closest(name, candidates)
    return f"did you mean `{near[0]}`?" if near else ""
