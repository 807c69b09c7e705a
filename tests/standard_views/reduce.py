"""A failing case, as short as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tests.standard_views.case import Step
from tests.standard_views.check import Failed

SECONDS_MAX = 40.0


def reduced(
    steps: Sequence[Step], failure: Failed, run: Callable[[Sequence[Step]], object]
) -> tuple[list[Step], Failed]:
    """The case without statements that are not needed for a failure of this kind."""
    kept, end = list(steps[: failure.step + 1]), time.monotonic() + SECONDS_MAX
    size = max(len(kept) // 2, 1)
    while True:
        at, shorter = len(kept) - size, False
        while at > -size and time.monotonic() < end:
            without = kept[: max(at, 0)] + kept[max(at, 0) + size :]
            found = fails(without, failure.kind, run)
            if found is not None:
                kept, failure, shorter = without[: found.step + 1], found, True
            at = min(at, len(kept)) - size
        if not shorter:
            if size == 1 or time.monotonic() >= end:
                return kept, failure
            size = max(size // 2, 1)


def fails(steps: Sequence[Step], kind: str, run: Callable[[Sequence[Step]], object]) -> Failed | None:
    """The failure of this kind, if the case has one. A statement that DuckDB refuses has lost its table."""
    try:
        run(steps)
    except Failed as found:
        return found if found.kind == kind else None
    except Exception:
        return None
    return None
