"""Times that are not used, and values that no store keeps, on Spark: as on the runtime, or an error that names them. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.spark.log_letters import FolderLetters
from flowql.runtime.spark.native.topics import Reading, rows_of
from flowql.runtime.spark.shapes import from_ipc
from flowql.runtime.state.frozen import UnwritableState
from tests.runtime.app.harness import function
from tests.runtime.spark import stage_world
from tests.runtime.spark.stage_world import SHAPES, Reference, dead_of, final, sink_of
from tests.runtime.spark.test_stage_program import local

YEAR_2190, YEAR_2300 = 6_942_672_000, 10_413_792_000  # in s
BORDERS = (-6 * 3_600, 10, 20, YEAR_2190, 30, YEAR_2300, -(10**10))


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source A takes no record that is a day ahead of the clock."""
    declared = stage_world.SOURCES.replace(
        "VALUE_FORMAT='JSON');\nCREATE STREAM B", "VALUE_FORMAT='JSON', MAX_AHEAD='1 DAY');\nCREATE STREAM B"
    )
    assert "MAX_AHEAD" in declared
    monkeypatch.setattr(stage_world, "SOURCES", declared)


def sent(shape: str) -> Reference:
    reference = Reference(shape)
    reference.send([("a", 1, 1, at) for at in BORDERS])
    return reference


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("shape", ["stateless", "count", "tumbling", "hopping", "session", "repartition"])
def test_the_range_of_times_and_max_ahead_are_those_of_the_runtime(shape: str) -> None:
    reference = sent(shape)
    rows = local(reference).bounded(reference.packed())
    letters = {d["OFFSET"]: d["MESSAGE"] for d in dead_of(rows)}
    assert {at: BORDERS[at] for at in letters} == {3: YEAR_2190, 5: YEAR_2300, 6: -(10**10)}
    assert "MAX_AHEAD is 86400 s" in letters[3]
    assert final(sink_of(rows)) == final(reference.sink())


@pytest.mark.usefixtures("ahead")
def test_native_queries_read_topics_with_the_same_range(tmp_path: Path) -> None:
    reference = sent("count")
    source = reference.plan.source("A")
    assert source is not None
    reading, raws = Reading(source, source.schema, "Q", str(tmp_path)), []
    for packed in reference.packed(chunk=100):
        if packed["topic"] == "a":
            records = from_ipc(packed["ipc"])
            tp = TopicPartition("a", packed["partition"])
            raws.append(RawBatch(tp, records, packed["next_offset"], records.nbytes))
    rows = sum(len(columns[0]) for columns in rows_of(reading.dumps(), raws))
    letters = FolderLetters(tmp_path, "Q").between({}, {raw.tp: raw.next_offset for raw in raws})
    told = [orjson.loads(value) for piece in letters for value in piece.records.column("value").to_pylist()]
    found = {d["OFFSET"]: d["MESSAGE"] for d in told}
    assert rows == len(BORDERS) - 3
    assert sorted(found) == [3, 5, 6]
    assert "MAX_AHEAD" in found[3]


class Unkept:
    """Nothing that a store keeps."""


def test_what_no_store_keeps_is_an_error_that_names_store_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has no careful mode: a batch is one commit of its own, and is refused whole."""
    monkeypatch.setitem(
        SHAPES, "unkept", "CREATE TABLE OUT AS SELECT K, COUNT_DISTINCT(UNKEPT(V)) AS N FROM A GROUP BY K;"
    )

    def unkept(value: Any) -> Any:
        return Unkept() if value == 4 else value

    with function("UNKEPT", unkept):
        reference = Reference("unkept")
        reference.send([("a", 1, v, v) for v in range(6)])
        with pytest.raises(UnwritableState, match=r"aggregate-1 that cannot be kept: a value of type Unkept"):
            local(reference).batch(reference.packed())
