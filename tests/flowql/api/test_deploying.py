"""For which plan a project is compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.api import deploying
from flowql.compiler.plan.topology import Plan
from flowql.config.load import load_project


@pytest.mark.parametrize(
    ("plan", "topics", "times"),
    [
        (None, {}, 1),
        (None, {"others": 3}, 1),  # no topic of the project
        (None, {"s": 4}, 2),
        ("of another process", {}, 2),
    ],
)
def test_a_project_is_compiled_again_only_if_something_changed(
    plan: str | None, topics: dict[str, int], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process deploys between the look at the directory and the start of the engine counts."""
    (tmp_path / "flowql.yaml").write_text(
        "name: p\nsql: [s.sql]\ntargets: {one: {engine: runtime}}\ndefault_target: one\n"
    )
    (tmp_path / "s.sql").write_text("CREATE STREAM S (K STRING KEY) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON');")
    project, none = load_project(tmp_path), Plan((), ())
    compiled: list[Plan] = []
    compile_sources = deploying.compile_sources

    def counted(*args: Any, previous: Plan, **more: Any) -> Any:
        compiled.append(previous)
        return compile_sources(*args, previous=previous, **more)

    monkeypatch.setattr(deploying, "compile_sources", counted)
    first = deploying.wanted_plan(project, running=none, topics={})
    running = none if plan is None else first
    engine: Any = SimpleNamespace(deployed=SimpleNamespace(plan=running), topics=lambda: topics)
    again = deploying.wanted_of_engine(engine, project, first, running=none, topics={})
    assert compiled == [none, running][:times]
    assert (again is first) == (times == 1)
