"""`flowql doctor` on data that is missing, damaged or of another time."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from flowql.doctor.examine import examine
from flowql.doctor.finding import Finding
from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.flowql.backup.world import SQL, Feed, hosted, settings_in, until_read
from tests.flowql.cli.conftest import flowql
from tests.flowql.cli.program import Program
from tests.flowql.cli.terminal import PROGRAM, WAIT_S

pytestmark = pytest.mark.turns("long")

__all__ = ["flowql"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project that has run and was stopped; its redo is trimmed."""
    (tmp_path / "flowql.yaml").write_text(
        "name: demo\nsql: [demo.sql]\ntargets: {default: {data_dir: data, memory: 64 MB}}\n"
    )
    (tmp_path / "demo.sql").write_text(SQL)
    run(tmp_path)
    return tmp_path


def run(folder: Path, records: int = 100) -> None:
    feed = Feed()
    with hosted(settings_in(folder / "data")) as host:
        feed.send(host.engine.instance.log, records)
        until_read(host, feed)


def findings(folder: Path) -> tuple[Finding | None, Finding | None]:
    """Of the log and of the state."""
    found = {f.check: f for f in examine(folder, "default", {}, os.environ)}
    return found.get("target default: log"), found.get("target default: state")


def found_in(folder: Path) -> tuple[Finding, Finding]:
    log, state = findings(folder)
    assert log is not None
    assert state is not None
    return log, state


def files_in(folder: Path) -> dict[str, bytes]:
    """What lies there; not RocksDB's own log, which every look at it writes to."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.startswith("LOG")
    }


def test_sound_data_and_none(shop: Path, tmp_path: Path) -> None:
    before = files_in(shop / "data")
    log, state = found_in(shop)
    assert (log.state, state.state) == ("ok", "ok")
    assert "at commit" in state.says
    assert files_in(shop / "data") == before, "a look changes nothing"
    shutil.rmtree(shop / "data")
    assert findings(shop) == (None, None)


def test_while_an_instance_runs(shop: Path) -> None:
    with hosted(settings_in(shop / "data"), sql=None):
        log, state = found_in(shop)
        assert (log.state, state.state, state.says) == ("ok", "ok", "the instance has it open")


def test_a_missing_state_is_rebuilt_at_the_next_start(shop: Path) -> None:
    shutil.rmtree(shop / "data" / "state")
    log, state = found_in(shop)
    assert (log.state, state.state) == ("ok", "warning")
    assert "is missing, though the log is whole: it is rebuilt from its inputs at the next start" in state.says
    assert state.fix.startswith("flowql run -t default")


def test_a_state_older_than_the_redo_reaches(shop: Path) -> None:
    shutil.copytree(shop / "data" / "state", shop / "older")
    run(shop)
    shutil.rmtree(shop / "data" / "state")
    (shop / "older").rename(shop / "data" / "state")
    _, state = found_in(shop)
    assert state.state == "warning"
    assert "older than the log's redo reaches" in state.says
    assert "it is rebuilt from its inputs at the next start" in state.says


def test_a_state_that_redo_brings_on(shop: Path) -> None:
    with hosted(settings_in(shop / "data"), sql=None) as host:
        feed = Feed(seed=2)
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        while not host.engine.instance.commit.idle:  # a copy takes its time, in which no file may change
            time.sleep(0.05)
        shutil.copytree(shop / "data", shop / "killed")  # as kill -9 leaves it: what was not flushed is in the redo
    shutil.rmtree(shop / "data")
    (shop / "killed").rename(shop / "data")
    (shop / "data" / "instance.json").unlink()
    _, state = found_in(shop)
    assert state.state == "ok"
    assert "the log's redo leads from there to" in state.says
    (redo,) = (shop / "data" / "log").glob("redo-*")
    data = bytearray(redo.read_bytes())
    data[-1] ^= 1
    redo.write_bytes(data)
    _, state = found_in(shop)
    assert state.state == "warning"
    assert "is damaged" in state.says
    assert "rebuilt from its inputs" in state.says


def test_a_state_of_another_log(shop: Path) -> None:
    shutil.copytree(shop / "data" / "log", shop / "older")
    run(shop)
    shutil.rmtree(shop / "data" / "log")
    (shop / "older").rename(shop / "data" / "log")
    _, state = found_in(shop)
    assert state.state == "failed"
    assert "they do not belong together" in state.says
    assert "flowql restore --from PLACE --replace -t default" in state.fix


def test_a_state_that_cannot_be_opened(shop: Path) -> None:
    (shop / "data" / "state" / "CURRENT").write_text("MANIFEST-999999\n")
    _, state = found_in(shop)
    assert (state.state, "is damaged" in state.says) == ("warning", True)
    assert state.fix.startswith("flowql run -t default")


def test_damage_that_a_reader_of_the_state_has_found(shop: Path) -> None:
    """The state can be opened, and `doctor` does not read all of it."""
    (shop / "data" / "state" / "DAMAGED").write_text("Corruption: block checksum mismatch")
    _, state = found_in(shop)
    assert (state.state, "block checksum mismatch" in state.says) == ("warning", True)
    run(shop)
    assert found_in(shop)[1].state == "ok"


def deep(folder: Path) -> dict[str, Finding]:
    """What is found where everything is read, by the end of the name of a check."""
    bars: list[str] = []

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
        read: list[int] = []
        yield read.append
        bars.append(title)
        assert total > 0
        assert sum(read) > 0

    found = {f.check.rpartition(": ")[2]: f for f in examine(folder, "default", {}, os.environ, bar)}
    assert "reading the log" in bars
    return found


def test_all_records_and_rows_are_read_where_it_is_asked_for(shop: Path) -> None:
    """A damaged block of the state was found by the query that read it, perhaps months later."""
    found = deep(shop)
    assert [found[check].state for check in ("records", "rows")] == ["ok", "ok"]
    assert "all can be read" in found["rows"].says
    with hosted(settings_in(shop / "data"), sql=None):
        assert deep(shop)["rows"].state == "ok", "beside an instance"
    (table, *_) = sorted((shop / "data" / "state").glob("*.sst"))
    change(table, 100)
    (segment,) = (shop / "data" / "log" / "topics").glob("s.*/0-*.arrows")
    change(segment, segment.stat().st_size - 20)
    assert found_in(shop)[1].state == "ok", "without reading all"
    found = deep(shop)
    assert [found[check].state for check in ("records", "rows")] == ["failed", "warning"]
    assert "s-0 offsets 0 to " in found["records"].says
    assert "flowql log verify" in found["records"].fix
    assert "checksum mismatch" in found["rows"].says
    assert found["rows"].fix.startswith("flowql run -t default")
    change(segment, segment.stat().st_size - 20)
    run(shop)
    assert deep(shop)["rows"].state == "ok", "it was made anew"


def change(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["removed", "removed with its lock", "cut"])
def test_a_commit_log_that_is_not_whole(shop: Path, damage: str) -> None:
    """Without it `doctor` found nothing wrong, and the next append began another log and removed all segments."""
    where = shop / "data" / "log"
    (commits,) = where.glob("commits-*.log")
    if damage == "cut":
        os.truncate(commits, commits.stat().st_size - 5)
    else:
        commits.unlink()
    if damage == "removed with its lock":
        (where / "append.lock").unlink()
    before = sorted(where.rglob("*.arrows"))
    log, state = findings(shop)
    assert log is not None
    assert (log.state, "committed" in log.says or "no commit log" in log.says) == ("failed", True)
    assert "flowql restore --from PLACE --replace" in log.fix
    assert state is None
    with pytest.raises(LogCorrupt):
        EmbeddedLog(where)
    assert sorted(where.rglob("*.arrows")) == before


@pytest.mark.parametrize("damage", ["removed", "short"])
def test_a_segment_that_the_commit_log_names(shop: Path, damage: str) -> None:
    segment = sorted((shop / "data" / "log" / "topics").glob("s.*/*.arrows"))[0]
    if damage == "removed":
        segment.unlink()
    else:
        os.truncate(segment, segment.stat().st_size - 8)
    log, state = findings(shop)
    assert log is not None
    assert log.state == "failed"
    assert str(segment) in log.says
    assert "flowql restore --from PLACE --replace" in log.fix
    assert state is None, "without its log it says nothing"


def test_a_damaged_commit_log(shop: Path) -> None:
    (commits,) = (shop / "data" / "log").glob("commits-*.log")
    data = bytearray(commits.read_bytes())
    data[40] ^= 1
    commits.write_bytes(data)
    log, _ = findings(shop)
    assert log is not None
    assert (log.state, "is damaged" in log.says) == ("failed", True)


def test_a_backup_is_looked_at(shop: Path, flowql: Program) -> None:
    where = shop / "backup"
    done = flowql("backup", str(where), "-p", str(shop), "-o", "json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["application_id"], said["place"]) == ("demo", where.as_uri())
    assert said["commit"] == said["state_commit"] > 0
    assert flowql("doctor", "--backup", str(where), "-p", str(shop)).code == 0
    (current,) = where.rglob("state/CURRENT/*")
    current.unlink()
    done = flowql("doctor", "--backup", str(where), "-p", str(shop), "-o", "json")
    assert done.code == 1
    (finding,) = json.loads(done.out)
    assert finding["state"] == "failed"
    assert f"{current.relative_to(where)} is missing in {where.as_uri()}" in finding["says"]
    done = flowql("restore", "--from", str(where), "--replace", "-p", str(shop))
    assert done.code == 1
    assert "FQ5701" in done.err


def test_backup_and_restore_say_what_they_did(shop: Path, flowql: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    done = flowql("backup", "backup")
    assert done.out.startswith("backup of demo at commit "), done.err
    assert done.out.endswith(" in backup\n")
    refused = flowql("restore", "--from", "backup")
    assert "FQ5704" in refused.err
    assert "flowql restore --from backup --replace" in refused.err
    done = flowql("restore", "--from", "backup", "--replace")
    assert done.out.startswith("restored demo at commit "), done.err
    (aside,) = shop.glob("data.replaced-*")
    assert aside.name in done.out
    done = flowql("restore", "--from", "backup", "--replace", "-o", "json")
    said = json.loads(done.out)
    assert Path(said["replaced"]).is_dir()
    assert said["data_dir"] == str(shop / "data")
    answer = flowql("query", "SELECT SUM(N) AS n FROM A", "-o", "json")
    assert json.loads(answer.out) == [{"n": 100}]


def test_a_bar_shows_what_takes_long(shop: Path) -> None:
    at_once = "import flowql.cli.progress as p; p._AFTER_S = -1.0; "
    take = ["backup", "backup"]
    for words, title in ((take, "backing up"), (["restore", "--from", "backup", "--replace"], "restoring")):
        child = pexpect.spawn(
            sys.executable, ["-c", f"{at_once}{PROGRAM}", *words], cwd=str(shop), encoding="utf-8", timeout=WAIT_S
        )
        child.expect_exact(title)
        child.expect(r"[1-9][0-9.]*/[0-9.]+ kB")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
