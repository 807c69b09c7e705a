"""An instance uploads its log and state all the time: what was uploaded can be restored, and nothing else is ever hidden by it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowql.backup.lay import restore_backup
from flowql.backup.take import take_backup
from flowql.cli.status import behind
from flowql.config.load import load_project
from flowql.config.sections import StateSettings
from flowql.deploy.settings import Settings
from flowql.doctor.remote_store import examine_remote_store
from flowql.doctor.stored import examine_backups
from flowql.errors import CommandError
from flowql.runtime.app import uploads
from flowql.runtime.backup import collecting, pinned
from flowql.runtime.backup.continuing import read_note
from flowql.runtime.backup.manifest import piece_name
from flowql.runtime.backup.place import Place
from flowql.runtime.commit import coordinator
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.remote import folder
from flowql.runtime.remote.errors import RemoteError
from flowql.runtime.remote.objects import objects_at
from flowql.runtime.state.remote import pace
from flowql.server.host import Host
from flowql.server.prometheus import METRICS
from tests.fake_s3 import BUCKET, KEY, SECRET, TOKEN, fake_s3
from tests.flowql.backup.world import SQL, Feed, expected, found, hosted, settings_in, until_read

pytestmark = pytest.mark.turns("queries")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds follow each other, and files come to an end some times a second."""
    monkeypatch.setattr(uploads, "INTERVAL_MS", 50)
    monkeypatch.setattr(pace, "SHARE", 0.5)
    monkeypatch.setattr(pace, "RETRY_MS", 50)
    monkeypatch.setattr(pace, "RETRY_MS_MAX", 50)
    monkeypatch.setattr(uploads, "LAST_S", 60)
    monkeypatch.setattr(ledger, "ROLL_BYTES", 20_000)
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 100_000)
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 50_000)


@pytest.fixture
def live(tmp_path: Path) -> Settings:
    return settings_in(tmp_path / "live", state=StateSettings((tmp_path / "store").as_uri()))


def until(what: Callable[[], object], timeout_s: float = 60.0) -> None:
    limit = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < limit, "in vain"
        time.sleep(0.01)


def uploaded(host: Host) -> None:
    """The store has the log's last commit."""
    instance = host.engine.instance
    assert instance.uploads is not None
    sequence = instance.log.last_sequence("demo")
    until(lambda: (instance.uploads.status()["commit"] or 0) >= sequence)


def everything(feed: Feed) -> dict[str, list[int]]:
    return {query: [len(rows) for rows in feed.fed] for query in ("CTAS_A", "CTAS_B", "CSAS_C")}


def kept(live: Settings, feed: Feed) -> list[list[tuple[str, int]]]:
    """What the log has of the records that were fed."""
    log = EmbeddedLog(live.log_dir)
    try:
        ends = [log.end_offset(TopicPartition("s", p)) for p in range(len(feed.fed))]
    finally:
        log.close()
    return [rows[:end] for rows, end in zip(feed.fed, ends, strict=True)]


def check_restored(live: Settings, feed: Feed, commit: int) -> None:
    """The directory is as of a commit: results are those of the records that had been read."""
    results, ends, at = found(live)
    assert at == commit
    assert results.without_b() == expected(feed.fed, ends).without_b()
    assert sum(ends["CTAS_A"]) > 0


RUN = """
from flowql.runtime.app import uploads
from flowql.runtime.state.remote import pace
uploads.INTERVAL_MS = 50
pace.SHARE = 0.5
from flowql.cli import main
main()
"""


@pytest.mark.slow
def test_a_killed_instance_whose_directory_is_lost_comes_back_and_goes_on(live: Settings, tmp_path: Path) -> None:
    """kill -9, the directory removed, restored: it is as of the last uploaded commit, and an instance goes on from there."""
    (tmp_path / "q.sql").write_text(SQL)
    target = "{data_dir: live, threads: 2, memory: 64 MB, state: {remote: store}}"
    (tmp_path / "flowql.yaml").write_text(f"name: demo\nsql: [q.sql]\ntargets: {{default: {target}}}\n")
    feed = Feed()
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, "run", "-p", str(tmp_path)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: (live.log_dir / "topics").is_dir() and list((live.log_dir / "topics").glob("s.*")))
        log, place = EmbeddedLog(live.log_dir), Place(objects_at(live.state.remote), "demo")
        with closing(log), feed.running(live.data_dir):
            until(lambda: log.last_sequence("demo") > 3 and place.manifests())
            until(lambda: place.read(place.manifests()[0])[0].commit > 2)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    newest, _ = place.read(place.manifests()[0])
    shutil.rmtree(live.data_dir)
    done = restore_backup(live, live.state.remote)
    assert done.manifest == newest
    check_restored(live, feed, newest.commit)
    feed.fed = kept(live, feed)
    with hosted(live, None) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        assert host.engine.instance.uploads.status()["away"] is None
    assert found(live)[0] == expected(feed.fed, everything(feed))
    assert [f.state for f in examine_backups(live.state.remote)] == ["ok"]


def test_a_restart_uploads_what_is_new(live: Settings) -> None:
    feed = Feed()
    with hosted(live) as host:
        for _ in range(10):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
        uploaded(host)
        first = host.engine.instance.uploads.status()["uploaded_bytes"]
    with hosted(live, None) as host:
        feed.send(host.engine.instance.log, 10)
        until_read(host, feed)
        uploaded(host)
        assert host.engine.instance.uploads.status()["uploaded_bytes"] < first / 4


def samples(status: dict[str, Any]) -> set[tuple[tuple[str, tuple[str, ...]], Any]]:
    """The figures of the remote store that Prometheus gets."""
    return {((m.name, labels), value) for m in METRICS if "_remote_" in m.name for labels, value in m.samples(status)}


class Outage:
    """A store that refuses writes while it is `away`. of: in the names of those."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: str = "") -> None:
        self.away, self._of, self._finish = False, of, folder.FolderWriter.finish
        monkeypatch.setattr(folder.FolderWriter, "finish", lambda written: self(written))

    def __call__(self, written: folder.FolderWriter) -> bool:
        if self.away and self._of in written._name:
            written._drop()
            raise RemoteError("the store is full")
        return self._finish(written)


def test_a_store_that_is_away_changes_nothing_else(live: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, store = Feed(), Outage(monkeypatch)
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
        upload = host.engine.instance.uploads
        store.away = True
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        until(lambda: upload.outage.attempts > 3)
        status = upload.status()
        commits = status["queries"]["CTAS_A"]["behind_commits"]
        assert "the store is full" in status["away"]
        shown = {"instance": {"remote": status}, "queries": []}
        assert (("flowql_remote_away", ()), 1) in samples(shown)
        assert behind(status) == f"the remote store gets nothing, and lacks {commits:,} commits: {status['away']}"
        assert commits > 0
        assert not pinned.pinned_log(live.data_dir, pinned.UPLOAD).exists(), "links are not kept in an outage"
        store.away = False
        uploaded(host)
        until(lambda: upload.status()["away"] is None)
        assert behind(upload.status()) == ""
        shown = {"instance": {"remote": upload.status()}, "queries": []}
        assert {(("flowql_remote_away", ()), 0), (("flowql_remote_behind_seconds", ("CTAS_A",)), 0)} <= samples(shown)
    events = [json.loads(line)["event"] for line in (live.data_dir / "instance.log").read_text().splitlines()]
    assert events.count("state.remote") == 2, "one at the beginning, one at the end"
    shutil.rmtree(live.data_dir)
    restore_backup(live, live.state.remote)
    assert found(live)[0] == expected(feed.fed, everything(feed))


REFUSALS = {
    "forbidden": ("FQ4092", "403 AccessDenied: Access Denied", "failed"),
    "full": ("FQ4091", "the store has no space left", "ok"),  # it can be read
    "expired": ("FQ4092", "the credentials have expired", "failed"),
    "quota": ("FQ4091", "the store has no space left (403 QuotaExceeded", "ok"),
    "no bucket": ("FQ4092", "there is no such bucket", "failed"),
}


def test_what_a_store_refuses_is_told_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Event, status, metric and doctor have the store's reason, none has a credential, and queries go on."""
    pytest.importorskip("obstore")
    url, feed = f"s3://{BUCKET}/shop", Feed()
    (tmp_path / "flowql.yaml").write_text(f"name: demo\ntargets: {{default: {{state: {{remote: '{url}'}}}}}}\n")
    target = load_project(tmp_path).target
    live = settings_in(tmp_path / "live", state=StateSettings(url))
    found: list[tuple[str, str]] = []
    with fake_s3(monkeypatch) as s3, hosted(live) as host:
        feed.send(host.engine.instance.log, 50)
        until_read(host, feed)
        uploaded(host)
        for kind, (_, says, state) in REFUSALS.items():
            s3.answers(kind, "PUT GET" if state == "failed" else "PUT")
            feed.send(host.engine.instance.log, 50)
            upload = host.engine.instance.uploads
            until(lambda upload=upload, says=says: says in (upload.status()["away"] or ""))
            until_read(host, feed)
            status = upload.status()
            assert (("flowql_remote_away", ()), 1) in samples({"instance": {"remote": status}, "queries": []})
            (finding,) = examine_remote_store("target default", target, "demo", running=True)
            assert (finding.state, says in finding.says or state == "ok") == (state, True)
            found.append((status["away"], finding.says + finding.fix))
        s3.answers("")
        uploaded(host)
        until(lambda: host.engine.instance.uploads.status()["away"] is None)
    text = (live.data_dir / "instance.log").read_text()
    events = [event for event in map(json.loads, text.splitlines()) if event["event"] == "state.remote"]
    assert [event.get("code") for event in events] == [*(code for code, _, _ in REFUSALS.values()), None]
    assert not [secret for secret in (KEY, SECRET, TOKEN) if secret in text + str(found)]


def test_manifests_that_get_no_answer_do_not_pile_up_in_the_note(
    live: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt added one to the note in `log`, for as long as the store was away."""
    feed, store = Feed(), Outage(monkeypatch, "/manifests/")
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
        until(lambda: len(read_note(live.data_dir).bases) == 1)  # written after the manifest
        (known,) = read_note(live.data_dir).bases
        store.away = True
        feed.send(host.engine.instance.log, 100)
        until(lambda: host.engine.instance.uploads.outage.attempts > 2 * uploads.UNANSWERED_MAX)
        bases = read_note(live.data_dir).bases
        assert len(bases) <= uploads.UNANSWERED_MAX + 2
        assert known in bases, "the newest that is there"
        until_read(host, feed)
    store.away = False
    with hosted(live, None) as host:
        uploaded(host)
    assert len(read_note(live.data_dir).bases) == 1


def test_an_empty_directory_hides_no_backup(live: Settings) -> None:
    """After the loss somebody starts the instance before the restore: it is refused; and a log that is new there is not uploaded."""
    feed = Feed()
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
    commit = found(live)[2]
    shutil.rmtree(live.data_dir)
    with pytest.raises(CommandError, match="has backups of demo") as refused, hosted(live):
        pass
    assert refused.value.code == "FQ5707"
    EmbeddedLog(live.log_dir).close()  # as an import makes it
    with hosted(live) as host:
        until(lambda: host.engine.instance.uploads.status()["away"])
        assert "does not go on from" in host.engine.instance.uploads.status()["away"]
    assert restore_backup(live, live.state.remote, replace=True).manifest.commit == commit
    with hosted(live, None) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
    assert found(live)[0] == expected(feed.fed, everything(feed))


def test_an_instance_that_was_given_up_changes_nothing(live: Settings, tmp_path: Path) -> None:
    """A zombie still runs while another machine has restored its backup and goes on: it gives up, and its copy cannot come back either."""
    feed, other = Feed(), replace(live, data_dir=tmp_path / "other")
    with hosted(live) as zombie:
        feed.send(zombie.engine.instance.log, 100)
        until_read(zombie, feed)
        uploaded(zombie)
        restore_backup(other, live.state.remote)
        fed = kept(other, feed)
        with hosted(other, None) as host:
            late = Feed(seed=2, fed=fed)
            late.send(host.engine.instance.log, 100)
            until_read(host, late)
            uploaded(host)
        feed.send(zombie.engine.instance.log, 100)
        until_read(zombie, feed)
        until(lambda: zombie.engine.instance.uploads.status()["away"])
        assert "another instance of demo has taken over" in zombie.engine.instance.uploads.status()["away"]
    with hosted(live, None) as host:
        until(lambda: host.engine.instance.uploads.status()["away"])
        assert "does not go on from" in host.engine.instance.uploads.status()["away"]
    back = replace(live, data_dir=tmp_path / "back")
    restore_backup(back, live.state.remote)
    assert found(back)[0] == expected(late.fed, everything(late))


def test_a_backup_into_the_same_store_stays_and_the_instance_goes_on(live: Settings) -> None:
    feed = Feed()
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
        taken = take_backup(live, live.state.remote)
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
        assert host.engine.instance.uploads.status()["away"] is None
    commit = found(live)[2]
    shutil.rmtree(live.data_dir)
    assert restore_backup(live, live.state.remote).manifest.commit == commit
    again = restore_backup(live, live.state.remote, replace=True, commit=taken.manifest.commit)
    assert again.manifest.commit == taken.manifest.commit  # the instance may have one of the same commit
    assert taken.object in {m.object for m in Place(objects_at(live.state.remote), "demo").manifests()}


@pytest.mark.slow
def test_what_no_manifest_needs_is_removed_after_its_time(live: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "COLLECT_MS", 20)
    monkeypatch.setattr(collecting, "GRACE_MS", 0)
    monkeypatch.setattr(collecting, "KEPT", 2)
    feed, place = Feed(), Place(objects_at(live.state.remote), "demo")
    with hosted(live) as host:
        for turn in range(6):
            feed.send(host.engine.instance.log, 50)
            until_read(host, feed)
            uploaded(host)
            if turn == 1:
                command = take_backup(live, live.state.remote)
        until(lambda: len(place.manifests()) == 3)
    assert any(m.object == command.object for m in place.manifests()), "what a command has made stays"
    with hosted(live, None) as host:
        until(lambda: host.engine.instance.uploads._collect_ms)
    (finding,) = examine_backups(live.state.remote)
    assert finding.state == "ok"
    named = {piece_name(place.folder, *piece) for m in place.manifests() for piece in place.read(m)[0].pieces()}
    there = {o.name for o in place.objects.list(f"{place.folder}/files")}
    assert named <= there
    assert len(there) < 2 * len(named), "objects do not pile up"
    shutil.rmtree(live.data_dir)
    check_restored(live, feed, restore_backup(live, live.state.remote).manifest.commit)


def test_the_last_commits_of_an_instance_that_stops_are_uploaded(
    live: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed()
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        uploaded(host)
        monkeypatch.setattr(uploads, "INTERVAL_MS", 60_000)
        feed.send(host.engine.instance.log, 100)
        uploaded(host)
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
    commit = found(live)[2]
    shutil.rmtree(live.data_dir)
    assert restore_backup(live, live.state.remote).manifest.commit == commit
    assert found(live)[0] == expected(feed.fed, everything(feed))


def test_bytes_that_wait_are_of_all_queries_together(live: Settings) -> None:
    """Each query had those of all of them."""
    query = {"behind_commits": 3, "behind_ms": 2_000}
    remote = {"away": None, "waiting_bytes": 1 << 20, "stored_bytes": 0, "queries": {"A": query, "B": query}}
    assert behind(remote) == "the remote store lacks 3 commits, the newest is 2 s old; 1.0 MB wait"
    with hosted(live) as host:
        uploaded(host)
        found = samples({"instance": {"remote": host.engine.instance.uploads.status()}, "queries": []})
    assert (("flowql_remote_waiting_bytes", ("",)), 0) in found
    assert not [name for name, _ in found if name[0] == "flowql_remote_waiting_bytes" and name[1] != ("",)]
