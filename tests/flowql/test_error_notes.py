"""Errors that no program catches: the traceback names the place and the correction."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import flowql
from flowql.errors import CommandError, ProjectError


def test_a_traceback_of_a_mistake_in_the_project_has_place_help_and_code(tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\nsqll: '*.sql'\n", "utf-8")
    with pytest.raises(ProjectError) as raised:
        flowql.connect(tmp_path)
    last = "".join(traceback.format_exception_only(raised.value))
    assert "flowql.yaml:2:1" in last
    assert "help: did you mean `sql`?" in last
    assert "more: flowql explain FQ3" in last


def test_a_traceback_of_a_command_has_help_and_code() -> None:
    last = "".join(traceback.format_exception_only(CommandError("too large", code="FQ5011", help="send less")))
    assert last.splitlines()[1:] == ["help: send less", "more: flowql explain FQ5011"]
