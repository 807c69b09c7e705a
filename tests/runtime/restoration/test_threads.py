"""With real threads: a large restoration while another query goes on, on RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime.app import restoration
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.task.status import TaskStatus
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo

pytestmark = pytest.mark.turns("long")

KEYS, PARTS = 60_000, 3
OTHER = "CREATE STREAM O WITH (KAFKA_TOPIC='o') AS SELECT K, V + 1 AS V FROM S EMIT CHANGES;"


def feed(life: Life, part: int) -> None:
    life.send("s", [(k, {"V": part}, part) for k in range(KEYS)])


def test_a_large_restoration_while_another_query_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 1_000)  # many turns, so that it takes long beside the other query
    life = Life(no_redo(), COUNTS + OTHER, live=True, physical=open_rocks(tmp_path / "one"))
    for part in range(PARTS):
        feed(life, part)
        life.settle()
    life = life.again(live=True, physical=open_rocks(tmp_path / "two"))
    task = life.instance.queries["CTAS_C"].built.tasks[0]
    other = life.instance.metrics.query("CSAS_O")
    life.send("s", [(k, {"V": 1}, 9) for k in range(100)])
    life.until(lambda: other.records_out == 100 or task.status is TaskStatus.RUNNING, "past the restoration")
    assert task.status is TaskStatus.RESTORING, "the other query waited for the restoration"
    life.settle()
    with life:
        assert life.instance.restoration.records >= 2 * PARTS * KEYS
        rows = life.table("C")
        assert len(rows) == KEYS
        assert {row[1] for row in rows[:100]} == {PARTS + 1}
        assert {row[1:] for row in rows[100:]} == {(PARTS, sum(range(PARTS)))}
