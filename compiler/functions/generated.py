"""Generated source text as code."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Literal


@lru_cache(maxsize=1024)
def compiled(source: str, mode: Literal["exec", "eval"] = "exec") -> CodeType:
    """The same source compiles once: constants that differ in value only by `==` (0.0 and -0.0) differ in text."""
    return compile(source, "<row kernel>", mode)
