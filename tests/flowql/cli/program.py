"""The program called in this process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from flowql.cli import main


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        """As a golden file holds it."""
        parts = [f"exit code {self.code}\n"]
        parts += [f"--- {name}\n{text}" for name, text in (("stdout", self.out), ("stderr", self.err)) if text]
        return "".join(parts)


class Program:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> CommandResult:
        self._capture.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = self._capture.readouterr()
        return CommandResult(int(stopped.value.code or 0), out, err)
