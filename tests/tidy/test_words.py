"""Sentences stand alone for a reader who knows nothing else of FlowQL: riddles that were rewritten do not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.tree import own_files, text_of

# What was written -> what is said in its place.
RIDDLES = {
    "of what there is": "the pending epoch",
    "waits for a commit learns so": "fails pending commit requests",
    "waits learns so": "completes the requests that wait",
    "does not get on, or nothing": "why it is stalled; empty if it is not",
    "get on a little": "lets other steps make progress",
    "somebody else is about it": "a deployment or restart is in progress",
    "was to be given up is": "completes the pending revocation",
    "not even to be known of": "missing or unauthorized",
    "that never were": "discards matching uncommitted writes",
    "may be there all the same": "may still become visible",
    "that nobody asks for": "idle",
    "Who reads goes on while": "prefetches",
    "0 but for that": "must be 0",
    "or the names of their results": "query ids or sink names",
    "Rows that are there, and": "the current state, and changes",
}
TEXTS = [p for p in own_files() if text_of(p) is not None and p != Path("tests/tidy/test_words.py")]


@pytest.mark.parametrize("riddle", RIDDLES)
def test_a_riddle_does_not_come_back(riddle: str) -> None:
    found = [str(p) for p in TEXTS if riddle in (text_of(p) or "")]
    assert not found, f"say: {RIDDLES[riddle]}"
