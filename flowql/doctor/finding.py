"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """check: what was looked at. says: what was found. fix: what to do about it, a command where one does it."""

    check: str
    state: State
    says: str
    fix: str = ""


def ok(check: str, says: str) -> Finding:
    return Finding(check, "ok", says)


def warning(check: str, says: str, fix: str) -> Finding:
    return Finding(check, "warning", says, fix)


def failed(check: str, says: str, fix: str) -> Finding:
    return Finding(check, "failed", says, fix)
