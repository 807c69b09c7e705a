"""A log of which only the calls are of interest: for tests of what passes calls on."""

from __future__ import annotations

import inspect
from typing import Any


class Noting:
    """Answers every call with a value of its own, and notes it."""

    def __init__(self, name: str = "") -> None:
        self.name, self.calls, self.made = name, list[tuple[str, tuple[object, ...]]](), dict[str, object]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **named: object) -> object:
            self.calls.append((name, (*arguments, *named.values())))
            return self.made.setdefault(name, object())

        return call


def calls_of(protocol: type) -> dict[str, tuple[int, bool]]:
    """The calls of a protocol: how many arguments each needs, and whether it answers."""
    found = {n: inspect.signature(f) for n, f in vars(protocol).items() if inspect.isfunction(f) and n[0] != "_"}
    return {n: (len(f.parameters) - 1, f.return_annotation != "None") for n, f in found.items()}
