"""Where a mistake in a module is shown, however its definition is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.config.functions import part_in_file


@pytest.mark.parametrize(
    ("text", "part", "shown"),
    [
        ("def f(a, b): pass", "", "f"),
        ("async def\tf(a, b): pass", "", "f"),
        ("def \\\n    f(a, b): pass", "", "def \\"),
        ("def f(é: 'ü', b: int): pass", "b", "b: int"),
        ("def f(a) -> list[int]: pass", "return", "list[int]"),
    ],
)
def test_the_span_holds_the_part_that_is_asked_for(tmp_path: Path, text: str, part: str, shown: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text, "utf-8")
    defined: dict[str, object] = {}
    exec(compile(text, str(file), "exec"), defined)
    span = part_in_file(tmp_path, defined["f"].__code__, part)  # type: ignore[attr-defined]
    assert span is not None
    assert span.line_text[span.column - 1 : span.column - 1 + span.length] == shown
