"""A file that was moved after its import, alone or with its project, is in its topic once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.runtime.log.memory import MemoryLog
from flowql.topics.import_files import file_format
from flowql.topics.import_job import Job, make_topic
from flowql.topics.importing import ImportResult, import_file
from tests.flowql.topics.test_import_again import csv, jsonl, numbers


def run(log: Log, file: Path, root: Path | None = None, **options: Any) -> ImportResult:
    job = Job("t", 2, file, file_format(file), None, 1_000, root=root, **options)
    make_topic(log, job)
    return import_file(log, job, lambda n: None)


def test_a_file_of_a_project_that_was_moved_adds_nothing(tmp_path: Path) -> None:
    """Its position had the absolute path for a name: all records came again, and every result counted them twice."""
    log, old, new = MemoryLog(), tmp_path / "old", tmp_path / "new"
    (old / "data").mkdir(parents=True)
    (old / "data" / "a.jsonl").write_text(jsonl(5))
    run(log, old / "data" / "a.jsonl", old)
    old.rename(new)
    assert run(log, new / "data" / "a.jsonl", new).was_done
    with (new / "data" / "a.jsonl").open("a") as stream:
        stream.write('{"N": 5}\n')
    assert run(log, new / "data" / "a.jsonl", new).records == 1
    assert numbers(log) == list(range(6))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", jsonl), ("a.csv", csv)])
def test_a_renamed_file_is_refused_until_told_what_it_is(tmp_path: Path, name: str, text: Any) -> None:
    log, file, renamed = MemoryLog(), tmp_path / name, tmp_path / f"b{Path(name).suffix}"
    file.write_text(text(5))
    run(log, file)
    file.rename(renamed)
    renamed.write_text(text(7))
    with pytest.raises(CommandError, match=f"5 records that are in topic t already.*{file}") as caught:
        run(log, renamed)
    assert caught.value.code == "FQ5018"
    assert numbers(log) == list(range(5))
    moved = run(log, renamed, moved=True)
    assert (moved.records, moved.before) == (2, 5)
    assert run(log, renamed).was_done, "it is known by its new path from then on"
    assert run(log, renamed, moved=True).was_done
    assert numbers(log) == list(range(7))


def test_a_moved_file_without_new_lines_is_known_afterwards(tmp_path: Path) -> None:
    log, file, renamed = MemoryLog(), tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    file.write_text(jsonl(5))
    run(log, file)
    file.rename(renamed)
    assert run(log, renamed, moved=True).records == 0
    assert run(log, renamed).was_done
    assert numbers(log) == list(range(5))


def test_another_file_that_begins_alike_is_imported_again(tmp_path: Path) -> None:
    log = MemoryLog()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(jsonl(3))
    run(log, tmp_path / "a.jsonl")
    assert run(log, tmp_path / "b.jsonl", again=True).records == 3
    assert run(log, tmp_path / "b.jsonl").was_done
    assert len(numbers(log)) == 6


def test_files_that_begin_otherwise_are_imported(tmp_path: Path) -> None:
    log = MemoryLog()
    texts = {"a.csv": csv(3), "head.csv": csv(0), "b.csv": csv(0) + "9,x\n", "short.csv": csv(2)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [run(log, tmp_path / name).records for name in texts] == [3, 0, 1, 2]


def test_a_parquet_file_that_was_renamed_is_refused(tmp_path: Path) -> None:
    log, file, renamed = MemoryLog(), tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"N": [1, 2, 3]}), file)
    run(log, file)
    file.rename(renamed)
    with pytest.raises(CommandError, match="begins with 3 records"):
        run(log, renamed)
    assert run(log, renamed, moved=True).records == 0
    assert numbers(log) == [1, 2, 3]


def test_a_file_that_was_never_imported_is_not_one_that_moved(tmp_path: Path) -> None:
    log, file = MemoryLog(), tmp_path / "a.jsonl"
    file.write_text(jsonl(3))
    with pytest.raises(CommandError, match=r"nothing in topic t was imported from a file that begins as a\.jsonl does"):
        run(log, file, moved=True)
    assert numbers(log) == []
