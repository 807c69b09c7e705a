"""Epochs in the log: once each, in order, beside other writers, and after a crash between staging and commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import STRING
from flowql.query.committed import dead_letter_source
from flowql.query.relations import TopicRelation, spans_of
from flowql.runtime.errors import LogError, StateError
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.operators.base import DeadLetter
from flowql.runtime.spark import log_append
from flowql.runtime.spark.engine.causes import runtime_failure
from flowql.runtime.spark.log_append import Target, append, committed_epochs, split
from flowql.runtime.spark.log_staging import Staging, pieces_of, stage, staging_of, sweep
from flowql.runtime.spark.shapes import DEAD, EXCHANGE, NOTE, SINK
from flowql.runtime.task import dead_letters
from flowql.runtime.task.dead_letters import LocatedDeadLetter
from tests.relations import table_of
from tests.runtime.spark.logs import append_emitted, emitted, open_log, records, values

TARGET = Target("Q/1", "run-a", "app")


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    return open_log(tmp_path, "out")


def row(text: str, *, partition: int = 0, source: int = 0, seq: int = 0) -> tuple[str, str, int, int, int, object]:
    return (SINK, "out", partition, source, seq, records([text.encode()]))


def test_records_are_ordered_by_source_and_seq(log: EmbeddedLog) -> None:
    late = emitted(row("d", source=1, seq=1), row("b", source=0, seq=5), row("x", partition=1))
    early = emitted(row("c", source=1, seq=0), row("a", source=0, seq=2))
    assert append_emitted(log, TARGET, 0, [late, early]).records == 5
    assert values(log, "out") == [[b"a", b"b", b"c", b"d"], [b"x"]]


def test_a_repeated_epoch_counts_once_and_its_place_is_kept(log: EmbeddedLog) -> None:
    for epoch in (0, 0, 1, 0, 1):
        append_emitted(log, TARGET, epoch, [emitted(row(f"e{epoch}"))])
    assert values(log, "out")[0] == [b"e0", b"e1"]
    committed = committed_epochs(log, TARGET)
    assert committed is not None
    assert (committed.run, committed.next_epoch) == ("run-a", 2)
    assert append_emitted(log, TARGET, 1, [emitted(row("again"))]).skipped


def test_an_epoch_takes_the_place_of_earlier_results(log: EmbeddedLog) -> None:
    """Also for an interactive query that looked before it and reads after it: it finds one of the two, and never nothing."""
    append_emitted(log, TARGET, 0, [emitted(row("old"), row("old too", partition=1))])
    source = SourceDef("OUT", "stream", "out", Schema((Field("V", STRING),)), Format("NONE"), Format("KAFKA"))
    relation = TopicRelation(source.name, source, log, spans_of(log, "out"))
    assert table_of(relation).column("V").to_pylist() == ["old", "old too"]
    again = Target(TARGET.query, "run-b", TARGET.application_id)
    pieces, notes = split([emitted(row("new"))])
    ends = {TopicPartition("out", p): 1 for p in range(2)}
    append(log, again, 0, pieces, notes, replaces=ends)
    append(log, again, 0, pieces, notes, replaces=ends)
    assert values(log, "out") == [[b"new"], []]
    assert table_of(relation).column("V").to_pylist() == ["new"]


def test_an_epoch_without_rows_moves_the_place(log: EmbeddedLog) -> None:
    assert committed_epochs(log, TARGET) is None
    append_emitted(log, TARGET, 0, [])
    committed = committed_epochs(log, TARGET)
    assert committed is not None
    assert committed.next_epoch == 1


def test_missing_epochs_and_another_checkpoint_are_refused(log: EmbeddedLog) -> None:
    with pytest.raises(StateError, match="cannot be the first"):
        append_emitted(log, TARGET, 3, [])
    append_emitted(log, TARGET, 0, [])
    with pytest.raises(StateError, match="are missing"):
        append_emitted(log, TARGET, 2, [])
    other = Target(TARGET.query, "run-b", "app")
    with pytest.raises(StateError, match="run-a at epoch 1"):
        append_emitted(log, other, 1, [])
    append_emitted(log, other, 0, [emitted(row("new run"))])  # it begins anew
    assert values(log, "out")[0] == [b"new run"]


def test_counters_are_summed_with_the_epochs(log: EmbeddedLog) -> None:
    note = (NOTE, "Q", 1, 1, 0, '{"query": "Q", "partition": 1, "records_in": 3, "late": {"op1": 2, "op2": 1}}')
    letters = (DEAD, "Q", 0, 0, 1, records([b"{}"]))
    for epoch in (0, 1, 1):
        append_emitted(log, TARGET, epoch, [emitted(row("a"), note, letters)])
    committed = committed_epochs(log, TARGET)
    assert committed is not None
    assert committed.counters == {"records_in": 6, "late": 6, "records_appended": 2, "dead_letters": 2}
    assert values(log, "app-dead-letters") == [[b"{}", b"{}"]]
    of_one_record = [(DEAD, "Q", 0, 0, 1, records([b"{}", b"{}"])), (NOTE, "Q", 0, 0, 2, '{"query": "Q", "dead": 1}')]
    append_emitted(log, TARGET, 2, [emitted(*of_one_record)])
    committed = committed_epochs(log, TARGET)
    assert committed is not None
    assert committed.counters["dead_letters"] == 3


def test_what_was_read_is_committed_with_it(log: EmbeddedLog) -> None:
    tp = TopicPartition("out", 1)
    append_emitted(log, TARGET, 0, [], {tp: 17})
    assert log.committed(TARGET.group)[tp].offset == 17


def test_rows_for_an_exchange_do_not_end_in_the_log(log: EmbeddedLog) -> None:
    with pytest.raises(LogError, match="exchange"):
        append_emitted(log, TARGET, 0, [emitted((EXCHANGE, "t", 0, 0, 0, ""))])


def test_nothing_of_an_epoch_that_fails_is_there(log: EmbeddedLog) -> None:
    bad = (SINK, "nowhere", 0, 0, 1, records([b"y"]))
    with pytest.raises(LogError, match="nowhere"):
        append_emitted(log, TARGET, 0, [emitted(row("x"), bad)])
    assert values(log, "out") == [[], []]
    assert committed_epochs(log, TARGET) is None


def test_a_second_writer_that_came_in_between_is_noticed(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers on one query: the one that was overtaken finds the epoch there and leaves it."""
    real, overtaken = log_append.committed_epochs, []

    def committed(of: EmbeddedLog, target: Target) -> log_append.CommittedEpochs | None:
        seen = real(of, target)
        if not overtaken:
            overtaken.append(1)
            append_emitted(log, target, 0, [emitted(row("theirs"))])
        return seen

    monkeypatch.setattr(log_append, "committed_epochs", committed)
    assert append_emitted(log, TARGET, 0, [emitted(row("mine"))]).skipped
    assert values(log, "out")[0] == [b"theirs"]


def test_a_crash_between_staging_and_commit_leaves_nothing_behind(log: EmbeddedLog, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    stage(staging, TARGET.query, [emitted(row("lost"))])  # the process dies here
    other = stage(staging, "Q2", [emitted(row("of another query"))])
    assert len(list(staging_of(staging, TARGET.query).iterdir())) == 1
    Staging(staging).clear(TARGET.query)
    assert not staging_of(staging, TARGET.query).exists()
    assert other.path is not None
    assert Path(other.path).exists()

    again = [stage(staging, TARGET.query, [emitted(row("a")), emitted(row("b", seq=1), row("c", partition=1))])]
    failed_attempt = stage(staging, TARGET.query, [emitted(row("a"))])
    append(log, TARGET, 0, list(pieces_of(again)), [])
    sweep(staging, TARGET.query)
    assert values(log, "out") == [[b"a", b"b"], [b"c"]]
    assert failed_attempt.path is not None
    assert not Path(failed_attempt.path).exists()
    assert list(staging_of(staging, TARGET.query).iterdir()) == []


def test_a_crash_between_commit_and_sweep_counts_once(log: EmbeddedLog, tmp_path: Path) -> None:
    for _ in range(2):  # Spark gives the batch again, since it does not know that it is committed
        staged = [stage(tmp_path, TARGET.query, [emitted(row("a"))])]
        append(log, TARGET, 0, list(pieces_of(staged)), [])
    sweep(tmp_path, TARGET.query)
    assert values(log, "out")[0] == [b"a"]
    assert list(staging_of(tmp_path, TARGET.query).iterdir()) == []


def test_staged_records_keep_headers_and_nulls(tmp_path: Path) -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []]
    given = records([None, b"v", b""], [b"k", None, b""], headers)
    staged = stage(tmp_path, "Q", [emitted((SINK, "out", 1, 2, 3, given))])
    (piece,) = pieces_of([staged])
    assert piece.records.to_pylist() == given.to_pylist()
    assert (piece.topic, piece.partition, piece.source, piece.seq) == ("out", 1, 2, 3)


def test_a_task_without_records_stages_no_file(tmp_path: Path) -> None:
    staged = stage(tmp_path, "Q", [emitted((NOTE, "Q", 0, 0, 0, '{"records_in": 4}'))])
    assert staged.path is None
    assert staged.notes == ({"records_in": 4},)
    assert list(pieces_of([staged])) == []
    assert split([emitted()]) == ([], [])


def test_another_process_appends_meanwhile(log: EmbeddedLog, tmp_path: Path) -> None:
    program = (
        "from tests.runtime.spark.logs import append, open_log\n"
        "from pathlib import Path\n"
        f"log = open_log(Path({str(tmp_path)!r}))\n"
        "for n in range(30): append(log, 'out', 1, [b'theirs%d' % n])\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program])
    for epoch in range(30):
        append_emitted(log, TARGET, epoch, [emitted(row(f"mine{epoch}"), row(f"mine{epoch}", partition=1))])
    assert other.wait(60) == 0
    own, mixed = values(log, "out")
    assert own == [f"mine{n}".encode() for n in range(30)]
    assert [v for v in mixed if v is not None and v.startswith(b"theirs")] == [b"theirs%d" % n for n in range(30)]
    assert [v for v in mixed if v is not None and v.startswith(b"mine")] == own


def test_errors_of_the_log_are_found_in_texts_of_spark() -> None:
    text = "STREAM_FAILED: Traceback ...\n  File x\nruntime.errors.OffsetOutOfRange: t-0: offset 3 is gone\n SQLSTATE: 38000"
    found = runtime_failure(RuntimeError(text))
    assert (type(found).__name__, str(found)) == ("OffsetOutOfRange", "t-0: offset 3 is gone")
    assert runtime_failure(ValueError("something else")) is None
    assert runtime_failure(ValueError("flowql.runtime.errors.annotations: x")) is None


def test_dead_letters_are_found_as_those_of_the_runtime(log: EmbeddedLog) -> None:
    raw = RawBatch(TopicPartition("t", 1), numbered(records([b"\x00bad"])), 8, 4)
    letters = dead_letters.encode("Q/1", [LocatedDeadLetter(DeadLetter(0, "FQ4020", "not JSON"), raw)])
    append_emitted(log, TARGET, 0, [emitted((DEAD, "Q/1", 0, 0, 0, letters))])
    source = dead_letter_source("app")
    found = table_of(TopicRelation(source.name, source, log, spans_of(log, source.topic))).to_pylist()
    assert [(r["QUERY"], r["TOPIC"], r["PARTITION"], r["OFFSET"], r["CODE"], r["VALUE"]) for r in found] == [
        ("Q/1", "t", 1, 7, "FQ4020", b"\x00bad")
    ]


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([7]), *batch.columns], schema=RECORD_SCHEMA)
