"""Lines to words: what a flat map is as a processor."""

from __future__ import annotations

import re
from typing import Any

from flowql import Processor, Topology

WORD = re.compile(r"\w+")


class Split(Processor):
    """Gives a record for each word of a line, with the word as its key."""

    def process(self, key: Any, value: Any) -> None:
        for word in WORD.findall((value["TEXT"] or "").lower()):
            self.context.forward(word, {"LENGTH": len(word)})


split = (
    Topology("SPLIT")
    .add_source("lines", "LINES")
    .add_processor("split", Split, "lines")
    .add_sink("words", "WORDS", "split")
)
