"""Every record of a file is in its topic once, however often and with whatever mistakes in it the import is tried."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flowql.compiler.plan.topology import SourceDef
from flowql.errors import CommandError
from flowql.runtime.errors import Fenced
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.topics import import_files, importing
from flowql.topics.import_files import file_format
from flowql.topics.import_job import Job, make_topic
from flowql.topics.importing import ImportResult, import_file, preview
from tests.flowql.topics.test_importing import source

pytestmark = pytest.mark.turns("long")

LETTERS = "app-dead-letters"


def run(log: Log, file: Path, declared: SourceDef | None = None, **options: Any) -> ImportResult:
    job = Job("t", 2, file, file_format(file), declared, 1_000, dead_letters=LETTERS, **options)
    make_topic(log, job)
    log.admin().create_topic(LETTERS, 1)
    return import_file(log, job, lambda n: None)


def values(log: Log, topic: str = "t", partitions: int = 2) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for p in range(partitions):
        reader = log.reader(TopicPartition(topic, p))
        while (batch := reader.read(10_000, 1 << 20)) is not None:
            found += [json.loads(v) for v in batch.records.column("value").to_pylist()]
    return found


def numbers(log: Log) -> list[int]:
    return sorted(v["N"] for v in values(log))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and transactions of some lines."""
    monkeypatch.setattr(import_files, "CHUNK_BYTES", 100)
    monkeypatch.setattr(import_files, "CHUNK_ROWS", 10)
    monkeypatch.setattr(importing, "TRANSACTION_BYTES", 500)


def jsonl(n: int, bad: int | None = None) -> str:
    return "".join('{"N":\n' if i == bad else json.dumps({"N": i}) + "\n" for i in range(n))


def csv(n: int, bad: int | None = None) -> str:
    return "N,S\n" + "".join(f'{i},"a\n""b"\n' if i != bad else "1,2,3\n" for i in range(n))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("name", "text"), [("a.jsonl", jsonl), ("a.csv", csv)])
def test_a_retry_goes_on_where_the_first_try_ended(tmp_path: Path, name: str, text: Any) -> None:
    log, file = MemoryLog(), tmp_path / name
    file.write_text(text(300, bad=200))
    with pytest.raises(CommandError) as caught:
        run(log, file)
    there = numbers(log)
    assert 0 < len(there) < 200
    assert f"{len(there):,} records before it are in the topic" in caught.value.help
    with pytest.raises(CommandError):
        run(log, file)
    assert numbers(log) == there, "nothing is written twice by another try"
    file.write_text(text(300))
    outcome = run(log, file)
    assert numbers(log) == list(range(300))
    assert (outcome.records, outcome.before) == (300 - len(there), len(there))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("name", "text"), [("a.jsonl", jsonl), ("a.csv", csv)])
def test_a_second_import_of_a_file_adds_nothing(tmp_path: Path, name: str, text: Any) -> None:
    log, file = MemoryLog(), tmp_path / name
    file.write_text(text(50))
    run(log, file)
    assert run(log, file).was_done
    assert numbers(log) == list(range(50))
    file.write_text(text(60))
    assert run(log, file).records == 10, "lines that were appended"
    assert numbers(log) == list(range(60))
    assert run(log, file, again=True).records == 60
    assert len(numbers(log)) == 120


@pytest.mark.usefixtures("small")
def test_parquet_is_imported_once(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    log, file = MemoryLog(), tmp_path / "a.parquet"
    pq.write_table(pa.table({"N": [*range(95), 10_000_000_000, *range(96, 100)]}), file)
    declared = source("N INT")
    outcome = run(log, file, declared, on_error="fail")  # a number beyond an INT wraps in the JSON of ksqlDB
    assert outcome.records == 100
    assert run(log, file, declared).was_done
    assert len(values(log)) == 100


@pytest.mark.usefixtures("small")
def test_a_file_that_changed_before_that_place_is_refused(tmp_path: Path) -> None:
    log, file = MemoryLog(), tmp_path / "a.jsonl"
    file.write_text(jsonl(300, bad=200))
    with pytest.raises(CommandError):
        run(log, file)
    there = len(numbers(log))
    file.write_text(jsonl(300).replace('{"N": 3}', '{"N": -3}'))
    with pytest.raises(CommandError, match="has changed since") as caught:
        run(log, file)
    assert caught.value.code == "FQ5014"
    file.write_text(jsonl(300))
    with pytest.raises(CommandError, match="with other options"):
        run(log, file, timestamp="N")
    assert len(numbers(log)) == there


def test_a_topic_that_is_made_anew_gets_the_file_anew(tmp_path: Path) -> None:
    log, file = MemoryLog(), tmp_path / "a.jsonl"
    file.write_text(jsonl(5))
    run(log, file)
    log.admin().delete_topic("t")
    assert run(log, file).records == 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("bad_lines", [(3,), (0, 1, 150, 299)])
def test_bad_records_are_skipped_or_become_dead_letters(tmp_path: Path, bad_lines: tuple[int, ...]) -> None:
    file = tmp_path / "a.jsonl"
    lines = jsonl(300).splitlines()
    for i in bad_lines:
        lines[i] = '{"N": "many"}' if i % 2 else "nonsense"
    file.write_text("\n".join(lines))
    declared, good = source("N INT"), [i for i in range(300) if i not in bad_lines]
    skipped = MemoryLog()
    outcome = run(skipped, file, declared, on_error="skip")
    assert (outcome.records, outcome.skipped, outcome.dead) == (len(good), len(bad_lines), 0)
    assert numbers(skipped) == good
    assert values(skipped, LETTERS, 1) == []
    log = MemoryLog()
    outcome = run(log, file, declared, on_error="dead-letter")
    assert (outcome.records, outcome.skipped, outcome.dead) == (len(good), 0, len(bad_lines))
    assert numbers(log) == good
    letters = values(log, LETTERS, 1)
    assert [letter["MESSAGE"].split(":")[:2] for letter in letters] == [["a.jsonl", str(i + 1)] for i in bad_lines]
    assert run(log, file, declared, on_error="dead-letter").was_done
    assert len(values(log, LETTERS, 1)) == len(bad_lines)


def test_a_dry_run_shows_rows_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("N,D\n" + "".join(f"{i},2024-01-{i + 1:02}\n" for i in range(20)) + "x,\n")
    found = preview(Job("t", 1, file, "csv", source("N INT, D DATE"), 5), lambda n: None)
    assert (found.records, found.bad_records) == (20, 1)
    assert found.decoded is not None
    assert found.decoded.rows() == [(i, 19_723 + i) for i in range(10)]
    assert [(b.line, b.raw) for b in found.bad] == [(22, b"x,")]


CHILD = """
import sys, json
from pathlib import Path
from flowql.topics import import_files, importing
from flowql.topics.import_job import Job
from flowql.topics.import_job import make_topic
from flowql.runtime.log.embedded.log import EmbeddedLog
import_files.CHUNK_BYTES, importing.TRANSACTION_BYTES = 20_000, 60_000
log = EmbeddedLog(sys.argv[1])
job = Job("t", 2, Path(sys.argv[2]), "jsonl", None, 5)
make_topic(log, job)
print("go", flush=True)
importing.import_file(log, job, lambda n: None)
print("done", flush=True)
"""


def test_imports_that_are_killed_neither_lose_nor_double(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(jsonl(60_000))
    done, kills = False, 0
    while not done:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "log"), str(file)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        if kills < 5:
            time.sleep(0.05 * (1 + kills))
            child.send_signal(signal.SIGKILL)
            kills += 1
        done = "done" in child.stdout.read()
        child.wait()
    log = EmbeddedLog(str(tmp_path / "log"))
    assert numbers(log) == list(range(60_000))
    log.close()


def test_of_two_imports_of_a_file_one_ends(tmp_path: Path) -> None:
    log, file = MemoryLog(), tmp_path / "a.jsonl"
    file.write_text(jsonl(10))
    job = Job("t", 1, file, "jsonl", None, 5)
    make_topic(log, job)

    def second(n: int) -> None:
        if n and not numbers_of_t(log):
            import_file(log, job, lambda n: None)

    with pytest.raises(Fenced):
        import_file(log, job, second)
    assert sorted(numbers_of_t(log)) == list(range(10))


def numbers_of_t(log: Log) -> list[int]:
    return [v["N"] for v in values(log, "t", 1)]


def test_a_tables_rows_count_from_the_beginning(tmp_path: Path) -> None:
    from flowql.topics.import_job import BEGINNING_MS, from_the_beginning

    table = source("K STRING PRIMARY KEY, V INT", kind="TABLE")
    assert from_the_beginning(table, None)
    assert not from_the_beginning(table, "V")
    assert not from_the_beginning(source("K STRING KEY, V INT"), None)
    file = tmp_path / "users.csv"
    file.write_text("K,V\na,1\n")
    log = MemoryLog()
    run(log, file, table, time_ms=BEGINNING_MS)
    raw = [log.reader(TopicPartition("t", p)).read(10, 1 << 20) for p in range(2)]
    assert [r.records.column("timestamp").to_pylist() for r in raw if r is not None] == [[0]]


def test_a_topic_that_drops_old_records_takes_none_from_the_beginning(tmp_path: Path) -> None:
    log, file = MemoryLog(), tmp_path / "users.csv"
    file.write_text("K,V\na,1\n")
    log.admin().create_topic("t", 2, {"retention.ms": "86400000"})
    with pytest.raises(CommandError, match="would drop them at once") as caught:
        run(log, file, source("K STRING PRIMARY KEY, V INT", kind="TABLE"), time_ms=0)
    assert caught.value.code == "FQ5015"
    assert log.end_offset(TopicPartition("t", 0)) == 0
