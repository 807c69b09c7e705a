"""Files of a history that another engine computed, and the state that is read over redo: what is written is what is found."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.errors import HandoverUnfit
from flowql.runtime.log.base import PRODUCE_SCHEMA
from flowql.runtime.state.changelog import records_of
from flowql.runtime.state.computed_history import (
    DEAD,
    HISTORY_SCHEMA,
    MANIFEST,
    ROWS,
    SINK,
    TASK,
    ComputedHistory,
    HistoryManifest,
    changelog_rows,
    decode_page,
    encode_page,
    shape_of,
    write_manifest,
    write_part,
)
from flowql.runtime.state.frozen import BOUND_RECORD
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.reader import RedoReader
from tests.compiler.plan.test_diff import ALL
from tests.flowql.query.harness import plan_of
from tests.runtime.state.support import manager_on, put, table, window


def stream_of(*keys: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, PRODUCE_SCHEMA) as writer:
        writer.write_batch(records_of(keys, keys, 0))
    return out.getvalue().to_pybytes()


def batch(*rows: tuple[str, str, int, int, int, bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(HISTORY_SCHEMA.names, row, strict=True)) for row in rows], HISTORY_SCHEMA
    )


def folder(path: Path) -> HistoryManifest:
    first = batch((SINK, "r", 0, 1, 1, stream_of(b"c")), (TASK, "q", 0, 0, 0, b"meta"))
    second = batch(
        (SINK, "r", 0, 0, 2, stream_of(b"b")),
        (SINK, "r", 0, 0, 1, stream_of(b"a")),
        (SINK, "r", 1, 0, 0, stream_of()),
        (DEAD, "d", 0, 0, 0, stream_of(b"x", b"y")),
        (ROWS, "T", 0, 0, 0, encode_page([b"k"], [b"v"])),
    )
    parts = (write_part(path, [first], "one"), write_part(path, [second, second.slice(0, 0)], "one"))
    assert [(p.name, p.rows) for p in parts] == [("part-one-0.arrow", 2), ("part-one-1.arrow", 5)]
    made = HistoryManifest("Q", "d", "s", {"s": 1}, {"s": {"0": 0}}, {"s": {"0": 3}}, 3, 2, 1, 1, parts)
    write_manifest(path, made)
    return made


def test_all_of_a_part_is_in_its_file_when_that_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable, fsync = dict[int, int](), os.fsync

    def noted(file: int) -> None:
        fsync(file)
        durable[os.fstat(file).st_ino] = os.fstat(file).st_size

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", noted)
        made = folder(tmp_path)
    files = [(tmp_path / part.name).stat() for part in made.parts]
    assert all(durable[file.st_ino] == file.st_size > 0 for file in files)


def test_a_folder_is_read_as_it_was_written_in_the_order_of_its_sources(tmp_path: Path) -> None:
    path = tmp_path / "first" / "history"
    made = folder(path)
    found = ComputedHistory(path)
    assert found.manifest == made
    assert found.metadata() == {(0, 0): b"meta"}
    records = {p: [r["key"] for b in bs for r in b.to_pylist()] for p, bs in found.records(SINK).items()}
    assert records == {0: [b"a", b"b", b"c"], 1: []}
    assert [b.num_rows for b in found.records(DEAD)[0]] == [2]
    assert [(r.topic, decode_page(r.data)) for r in found.rows(ROWS)] == [("T", ([b"k"], [b"v"]))]


@pytest.mark.parametrize(
    ("wrong", "read"),
    [({"records": 2}, lambda h: h.records(SINK)), ({"letters": 3}, lambda h: h.records(DEAD)), ({"tasks": 2}, ComputedHistory.metadata)],
)  # fmt: skip
def test_a_folder_that_has_other_rows_than_its_manifest_says_is_refused(tmp_path: Path, wrong: Any, read: Any) -> None:
    write_manifest(tmp_path, replace(folder(tmp_path), **wrong))
    with pytest.raises(HandoverUnfit, match="its manifest says"):
        read(ComputedHistory(tmp_path))


def test_a_folder_that_is_incomplete_damaged_or_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HandoverUnfit, match="no complete history"):
        ComputedHistory(tmp_path)
    made = folder(tmp_path)
    path = tmp_path / made.parts[1].name
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]):
        path.write_bytes(damaged)
        with pytest.raises(HandoverUnfit, match="differs from what was written"):
            ComputedHistory(tmp_path)
    path.unlink()
    with pytest.raises(HandoverUnfit, match="is missing"):
        ComputedHistory(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps({"format": 2}))
    with pytest.raises(HandoverUnfit, match="has format 2; this FlowQL reads 1"):
        ComputedHistory(tmp_path)


def test_physical_rows_are_the_changelog_records_of_their_stores() -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical, changelog=lambda _: True)
    task = manager.open_task("q", 1, [table(), window()])
    task.store("W").expire(60_001)
    put(manager, task, "W", {("a", 120_000): (1,), ("b", 180_000): (2,)})
    put(manager, task, "T", {("k",): (3,)})
    frozen = manager.cut()
    written = {(name, key, value) for name, _, key, value in frozen.changelog()}
    manager.apply(frozen, 1)
    entries = [task.store(n).entry for n in ("T", "W")]
    places = {e.prefix(1) for e in entries} | {e.bound_key(1) for e in entries}
    rows = [(k, v) for k, v in physical.scan(b"", b"\xff" * 9) if k in places or any(k.startswith(p) for p in places)]
    found = set(changelog_rows(entries, rows))
    assert found == written
    assert any(key == BOUND_RECORD for _, key, _ in found)


def test_the_shape_of_a_query_is_that_of_its_state_and_not_of_where_it_writes() -> None:
    plans = [plan_of(sql) for sql in (ALL, ALL.replace("TABLE A AS", "TABLE A WITH (KAFKA_TOPIC='z') AS"))]
    same, other = (p.queries[0] for p in plans)
    assert shape_of(same) == shape_of(other)
    assert shape_of(same) == shape_of(replace(same, definition="another"))
    assert len({shape_of(q) for q in plans[0].queries}) == len(plans[0].queries)


def test_the_shape_of_a_query_is_that_of_its_operators() -> None:
    columns = ("S", "A"), ("S", "B"), ("T", "A")
    statement = "CREATE STREAM {0} (K STRING KEY, A INT, B INT) WITH (KAFKA_TOPIC='{0}', VALUE_FORMAT='JSON');\n"
    sql = statement.format("S") + statement.format("T") + "CREATE STREAM R AS SELECT K, {1} FROM {0};"
    assert len({shape_of(plan_of(sql.format(*named)).queries[0]) for named in columns}) == len(columns)


@pytest.mark.parametrize("seed", range(20))
def test_redo_over_a_directory_reads_as_if_it_had_been_written(seed: int) -> None:
    chance = random.Random(seed)
    keys = [b"%02d" % n for n in range(30)]
    base, applied = MemoryPhysical(), MemoryPhysical()
    for store in (base, applied):
        store.write_batch(keys[::2], [b"old"] * 15)
    redone = RedoReader(base)
    for n in range(4):
        low, high = sorted(chance.sample(keys, 2))
        changed = chance.sample(keys, 5)
        values = [chance.choice((None, b"new%d" % n)) for _ in changed]
        redone.redo(Writes([(low, high)], changed, values))
        applied.write_batch(changed, values, [(low, high)])
        low, high = sorted(chance.sample(keys, 2))
        assert list(redone.scan(low, high)) == list(applied.scan(low, high))
        assert redone.multi_get(keys) == applied.multi_get(keys)
        assert redone.get(keys[n]) == applied.get(keys[n])
