"""How mistakes in modules with functions are shown: the code, the line with a caret, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.render import render
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from tests.flowql import test_processors, test_user_aggregates, test_user_functions
from tests.flowql.projects_with_modules import made

SOURCES = {
    "function": (test_user_functions.MISTAKES, "from flowql import udf\n\n\n{}\n"),
    "topology": (test_processors.MISTAKES, test_processors.T + "{}\n"),
    "aggregate": (test_user_aggregates.MISTAKES, "from flowql import udaf\n\n\n@udaf\n{}\n"),
}


@pytest.mark.parametrize("kind", list(SOURCES))
def test_every_mistake_is_shown_with_its_place_and_what_to_write(
    tmp_path: Path, kind: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes, module = SOURCES[kind]
    shown = []
    for name, (source, _) in mistakes.items():
        folder = made(tmp_path / name, "name: x\nfunctions: m\n", "", m=module.format(source))
        monkeypatch.chdir(folder)
        found = [d for d in compile_sources(load_project(folder)).diagnostics if d.code == "FQ3012"]
        assert found
        shown.append(f"-- {name}\n{render(found)}".rstrip())
    golden(f"functions/{kind}_mistakes.txt", "\n\n".join(shown) + "\n")
