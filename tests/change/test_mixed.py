"""Deployments of a part of the files: what runs on with an old text, or without one, has an end that can be compared."""

from __future__ import annotations

import random

import pytest

from tests.change.project import Aggregate, InsertRow, Item, Project, Select, Source, Window
from tests.change.story import Options, Story

SOURCE = Source("S", "stream", (("A", "BIGINT"),))
RESULT = Select("Q", "S", (Item("{A}", "BIGINT", "A"),))
WINDOWS = Aggregate("W", "Q", ("K",), (Item("COUNT(*)", "BIGINT", "N"),), Window("SESSION", 10, grace_s=0))


class Sure(random.Random):
    """Nothing that is left to chance happens: no `--prune`, no `--full-refresh`, no `--shadow`."""

    def random(self) -> float:
        return 0.7


def begun(seed: int) -> Story:
    story = Story(seed, Options(edits="all"))
    story.project = Project((SOURCE, RESULT, WINDOWS))
    story.engine.log.create_topic(SOURCE.topic, 1)
    story._feed()
    story._deploy(story.project, ["begin"])
    assert story._rest() == []
    story.rng = story._whim = Sure(seed)
    return story


@pytest.mark.parametrize("chosen", [[], ["Q"]])
def test_a_window_that_is_in_no_file_any_more_meets_no_row_that_comes_later(chosen: list[str]) -> None:
    """It ran on, over a stream with a row later than all others. Rows before it were late in the fresh run alone, where it came first.

    `python -m tests.change --processes --seeds 1 --seed 373 --kills`
    """
    story = begun(1)
    story._chosen = lambda project, names: chosen  # type: ignore[method-assign]
    row = InsertRow("R", "Q", (("K", "'k1'"), ("A", "1")), story.feed.now_ms)
    story._deploy(Project((SOURCE, RESULT, row)), ["edit"])
    story._feed()
    assert story._rest() == []
    assert [q.id for q in story.engine.plan.queries] == ["CSAS_Q"]


def test_a_query_that_is_in_no_file_any_more_runs_on_where_nothing_depends_on_chance() -> None:
    story = begun(1)
    story._deploy(Project((SOURCE, RESULT)), ["edit"])
    story._feed()
    assert story._rest() == []
    assert [q.id for q in story.engine.plan.queries] == ["CSAS_Q", "CTAS_W"]
