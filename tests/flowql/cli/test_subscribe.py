"""`flowql subscribe` at a live instance in this process, and at one that has stopped."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from flowql.cli.listening import JsonWriter, TableWriter
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.query.change import Change, Rebuilt
from flowql.query.push import Start
from flowql.runtime.log.base import TopicPartition
from flowql.server.following import Following, compile_text, deployed
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from tests.flowql.cli.conftest import SQL
from tests.flowql.cli.program import Program
from tests.flowql.query.harness import plan_of
from tests.runtime.log.records import produce

pytestmark = pytest.mark.turns("long")


def test_rows_and_changes(flowql: Program, host: Host, folder: Path) -> None:
    said = flowql("subscribe", "S", "--from", "earliest", "--limit", "3", "-p", str(folder))
    assert (said.code, said.out) == (0, "K     V\na     1\nb    22\na  NULL\n")
    assert said.err.endswith("3 rows\n")
    said = flowql("subscribe", "a", "--from", "earliest", "--limit", "2", "-o", "json", "-p", str(folder))
    changes = [json.loads(line) for line in said.out.splitlines()]
    assert [(c["op"], sorted(c["row"])) for c in changes] == [("put", ["K", "N"])] * 2
    text = "SELECT V, COUNT(*) AS N FROM S WHERE V > 5 GROUP BY V EMIT CHANGES LIMIT 1"
    said = flowql("subscribe", text, "--from", "earliest", "-p", str(folder))
    assert said.out == "change   V  N\nput     22  1\n"


def test_of_a_stopped_instance_what_there_is(flowql: Program, host: Host, folder: Path) -> None:
    flowql("subscribe", "A", "--from", "earliest", "--limit", "2", "-p", str(folder))  # it has been computed
    host.close()
    said = flowql("subscribe", "SELECT V FROM S EMIT CHANGES", "--from", "earliest", "-p", str(folder))
    assert (said.code, said.out, said.err) == (0, "   V\n   1\n  22\nNULL\n", "no instance is running; 3 rows\n")
    said = flowql("subscribe", "S", "-p", str(folder))
    assert (said.code, "FQ5106" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("what", "error"),
    [("Z", "FQ5103"), ("SELECT X FROM S EMIT CHANGES", " 1 | SELECT X FROM S EMIT CHANGES\n   |        ^")],
)
def test_mistakes(flowql: Program, host: Host, folder: Path, what: str, error: str) -> None:
    said = flowql("subscribe", what, "-p", str(folder))
    assert (said.code, said.out) == (1, "")
    assert error in said.err


def test_where_nothing_was_deployed(flowql: Program, folder: Path) -> None:
    assert "FQ5105" in flowql("subscribe", "S", "-p", str(folder)).err


BIG = "CREATE STREAM BIG AS SELECT K, V FROM S WHERE V > {over};\n"
WAIT_S = 60.0


def followed(
    host: Host, folder: Path, text: str, start: Start, then: Callable[[], object], until: int
) -> list[Change | Rebuilt]:
    """What is told of BIG; `then` is done when all of it was, and it ends so many rows after the boundary."""
    project = load_project(folder)
    settings = settings_of(project)
    there = deployed(settings)
    told: list[Change | Rebuilt] = []
    limit = time.monotonic() + WAIT_S

    def anew(found: object) -> object:
        return compile_text(text, found, settings, project)  # type: ignore[arg-type]

    with closing(Following(anew(there), settings, there, start, anew)) as following:  # type: ignore[arg-type]
        done = False
        for found in following:
            told += [found] if isinstance(found, Rebuilt) else found
            assert time.monotonic() < limit, told
            if not done and following.subscription.is_whole and following.subscription.ready:
                done = True
                then()
            boundary = next((n for n, f in enumerate(told) if isinstance(f, Rebuilt)), None)
            if boundary is not None and len(told) - boundary > until:
                return told
    raise AssertionError("it ended")


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_where_a_stream_is_rebuilt_a_boundary_is_announced_and_all_of_it_follows(
    host: Host, folder: Path, start: Start
) -> None:
    host.service.deploy(plan_of(SQL + BIG.format(over=5)))
    while not host.service.query("SELECT * FROM BIG").table().num_rows:
        time.sleep(0.02)
    new = SQL + BIG.format(over=0).replace("K, V FROM", "K, V, V + 1 AS W FROM")
    told = followed(host, folder, "BIG", start, lambda: host.service.deploy(plan_of(new)), 2)
    rows = [found.row if isinstance(found, Change) else str(found) for found in told]
    said = "generation 2 of BIG: all rows follow again"
    before = [{"K": "b", "V": 22}] if start == "earliest" else []
    assert rows == [*before, said, {"K": "a", "V": 1, "W": 2}, {"K": "b", "V": 22, "W": 23}]


def test_what_is_computed_of_a_rebuilt_stream_begins_anew(host: Host, folder: Path) -> None:
    host.service.deploy(plan_of(SQL + BIG.format(over=5)))
    text = "SELECT 1 AS ONE, SUM(V) AS T FROM BIG GROUP BY 1 EMIT CHANGES"
    new = plan_of(SQL + BIG.format(over=0))
    told = followed(host, folder, text, "earliest", lambda: host.service.deploy(new), 1)
    assert [f.row["T"] if isinstance(f, Change) else f.generations for f in told][-1] == 23
    assert {"BIG": 2} in [f.generations for f in told if isinstance(f, Rebuilt)]


def expired(host: Host, topic: str) -> None:
    """All records of a topic are gone, as by retention, and one more row comes of BIG."""
    assert isinstance(host.engine, RuntimeEngine)
    log, tp = host.engine.instance.log, TopicPartition(topic, 0)
    producer = log.producer("test")
    producer.begin()
    producer.drop_before(tp, log.admin().end_offset(tp))
    producer.commit()
    produce(log, "test", (TopicPartition("s", 0), [(7, b"c", b'{"V": 50}')]))


@pytest.mark.parametrize(
    ("text", "gone", "stopped_after_s"),
    [("BIG", "BIG", None), ("SELECT K, V FROM S WHERE V > 5 EMIT CHANGES", "s", None), ("BIG", "BIG", 1.0)],
)
def test_retention_is_no_rebuild_and_who_waits_for_one_can_be_stopped(
    host: Host, folder: Path, text: str, gone: str, stopped_after_s: float | None
) -> None:
    host.service.deploy(plan_of(SQL + BIG.format(over=5)))
    settings = settings_of(load_project(folder))
    there, end, rows = deployed(settings), float("inf"), []
    query = compile_text(text, there, settings, load_project(folder))
    began = time.monotonic()
    with closing(
        Following(query, settings, there, "earliest", lambda _: query, stopped=lambda: time.monotonic() > end)
    ) as following:
        for found in following:
            assert not isinstance(found, Rebuilt)
            assert time.monotonic() < began + 30
            rows += [change.row["V"] for change in found]
            if rows == [22] and end == float("inf") and following.subscription.idle():
                expired(host, gone)
                end = time.monotonic() + (stopped_after_s or 60)
            if rows == [22, 50]:
                break
    assert rows == ([22, 50] if stopped_after_s is None else [22])


def test_a_boundary_as_it_is_written(host: Host, folder: Path) -> None:
    result = host.service.plan.source("S")
    assert result is not None
    boundary = Rebuilt({"BIG": 2}, result, ("K", "W"))
    out = io.StringIO()
    JsonWriter(out).begin(boundary)
    assert json.loads(out.getvalue()) == {"op": "rebuilt", "generations": {"BIG": 2}}
    out = io.StringIO()
    writer = TableWriter(("K", "V"), result, out)
    writer.write([Change("insert", 0, {"K": "a", "V": 1})])
    writer.begin(boundary)
    writer.write([Change("insert", 0, {"K": "a", "W": 2})])
    assert out.getvalue() == "K  V\na  1\n-- generation 2 of BIG: all rows follow again\nK  W\na  2\n"
