"""`flowql dlq` at an instance in this process: open letters by record, and results after a repair as if the records had been right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowql.dlq import replay as replaying
from flowql.dlq.repair import Repaired
from flowql.dlq.replay import replay
from flowql.query.dead_letters import Letter
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.repairs import Repair, topic_name
from flowql.server.bodies import Malformed
from flowql.server.client import Client
from flowql.server.host import Host
from flowql.server.replays import Part, Replays
from flowql.server.running import connect
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_deploy import Site
from tests.runtime.log.records import produce

pytestmark = pytest.mark.turns("queries")

SOURCE = """
CREATE STREAM S (K STRING KEY, V INT, NOTE STRING) WITH (KAFKA_TOPIC = 'in', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM L (K STRING KEY, A INT, B STRING) WITH (KAFKA_TOPIC = 'lines', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'DELIMITED');
CREATE TABLE TOTALS AS SELECT K, SUM(V) AS TOTAL, COUNT(*) AS N FROM S GROUP BY K;
CREATE STREAM LARGE AS SELECT K, V FROM S WHERE V > {over};
CREATE STREAM NOTES AS SELECT K, NOTE FROM S;
CREATE TABLE PER_V AS SELECT V, COUNT(*) AS N FROM LARGE GROUP BY V;
CREATE TABLE LINES AS SELECT K, SUM(A) AS TOTAL FROM L GROUP BY K;
"""
RECORDS: list[tuple[str, bytes]] = [
    ("a", b'{"V": 1, "NOTE": "x"}'),
    ("b", b'{"V": "7,5", "NOTE": "y"}'),
    ("a", b'{"V": 20, "NOTE": "z"}'),
    ("b", b"not json"),
    ("c", b'{"v": "30 EUR"}'),
]
RIGHT = [*RECORDS]
RIGHT[1] = ("b", b'{"V": 8, "NOTE": "y"}')
RIGHT[3] = ("b", b'{"V": 0}')
RIGHT[4] = ("c", b'{"V": 30}')
RESULTS = ("TOTALS", "LARGE", "NOTES", "PER_V", "LINES")


class LetterSite(Site):
    def send(self, topic: str, records: list[tuple[str, bytes]]) -> None:
        rows = [(time_ms, key.encode(), value) for time_ms, (key, value) in enumerate(records)]
        produce(self.instance.log, "test", (TopicPartition(topic, 0), rows))
        self.settle()

    def sql(self, over: int = 5) -> None:
        (self.folder / "demo.sql").write_text(SOURCE.format(over=over))

    def results(self) -> dict[str, list[str]]:
        return {
            name: sorted(json.dumps({k: v for k, v in row.items() if k != "ROWTIME"}) for row in self.rows(name))
            for name in RESULTS
        }

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        done = self("dlq", "ls", "-o", "json", *arguments)
        assert done.code == 0, done
        found: list[dict[str, Any]] = json.loads(done.out)
        return found


@pytest.fixture
def site(flowql: Program, host: Host, folder: Path) -> LetterSite:
    found = LetterSite(flowql, folder, host)
    found.sql()
    found.deploy("--prune")
    found.send("in", RECORDS)
    found.send("lines", [("a", b"1,x"), ("a", b"two,y")])
    return found


REPAIRS = (
    (
        "--where",
        "topic = 'in' AND value LIKE '{%'",
        "--set",
        "V = round(regexp_extract('[0-9.]+', replace(V, ',', '.'))::DOUBLE)::INT",
    ),
    ("--where", "topic = 'in'", "--set", "VALUE = '{\"V\": 0}'"),
    ("--where", "topic = 'lines'", "--set", "A = 2"),
)


def test_a_record_is_one_letter_with_the_queries_it_failed(site: LetterSite) -> None:
    found = site.listed("--where", "topic = 'in'")
    assert [(x["offset"], sorted(f["query"] for f in x["failures"])) for x in found] == [
        (1, ["CSAS_LARGE", "CTAS_TOTALS"]),
        (3, ["CSAS_LARGE", "CSAS_NOTES", "CTAS_TOTALS"]),
        (4, ["CSAS_LARGE", "CTAS_TOTALS"]),
    ]
    asked = site("query", "SELECT QUERIES FROM DEAD_LETTERS WHERE TOPIC = 'in' ORDER BY 1", "-o", "json")
    assert [row["QUERIES"] for row in json.loads(asked.out)] == sorted(
        [f["query"] for f in x["failures"]] for x in found
    )
    shown = site("dlq", "show", "in/0@3")
    assert "not json" in shown.out
    assert site("dlq", "show", "in/0@2").code == 1
    assert "FQ5804" in site("dlq", "show", "in/0@2").err


def test_repaired_results_are_as_if_the_records_had_been_right_and_stay_so(site: LetterSite) -> None:
    for repair in REPAIRS:
        done = site("dlq", "replay", *repair)
        assert done.code == 0, done
        site.settle()
    assert site.listed() == []
    right = site.results()
    assert right["TOTALS"] == [
        '{"K": "a", "TOTAL": 21, "N": 2}',
        '{"K": "b", "TOTAL": 8, "N": 2}',
        '{"K": "c", "TOTAL": 30, "N": 1}',
    ]
    assert right["LINES"] == ['{"K": "a", "TOTAL": 3}']
    assert right["PER_V"] == ['{"V": 20, "N": 1}', '{"V": 30, "N": 1}', '{"V": 8, "N": 1}']
    site.sql(over=-1)  # a later rebuild reads repairs too
    site.deploy()
    site.settle()
    assert len(site.results()["LARGE"]) == 5
    assert site.results()["TOTALS"] == right["TOTALS"]
    topic = site.host.service.query("SELECT V FROM S").table().column("V").to_pylist()
    assert topic == [1, 8, 20, 0, 30], "interactive queries read repairs"


def test_a_replay_may_come_in_parts(site: LetterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request has one record here. Nothing is repaired before the last one, so all queries are rebuilt once."""
    monkeypatch.setattr(replaying, "_AT_ONCE", 1)
    sent = []
    asked, known = Client.replay, site.instance.repaired.repairs
    monkeypatch.setattr(Client, "replay", lambda self, parts: sent.append(len(parts)) or asked(self, parts))
    deployments = len(site.host.service.deployments())
    for repair in REPAIRS:
        assert site("dlq", "replay", *repair).code == 0
        site.settle()
    assert max(sent) > 1
    assert len(site.host.service.deployments()) == deployments + len(REPAIRS)
    assert site.listed() == []
    assert site.results()["LINES"] == ['{"K": "a", "TOTAL": 3}']
    assert known.get(TopicPartition("in", 0), 1) is not None


def test_parts_of_a_replay() -> None:
    """Parts wait for the last one; another replay drops those of one that never ended; what waits is bounded."""

    def part(offset: int, replay: str, *, more: bool, size: int = 0) -> Part:
        repair = Repair(None, b"x" * size, 1)
        return Part([Redelivery(TopicPartition("in", 0), offset, repair, ("Q",), True)], replay, more=more)

    def offsets(found: Sequence[Redelivery] | None) -> list[int] | None:
        return None if found is None else [r.offset for r in found]

    replays = Replays(bytes_max=10_000)
    assert offsets(replays.whole(part(1, "", more=False))) == [1]
    assert offsets(replays.whole(part(2, "a", more=True))) is None
    assert offsets(replays.whole(part(3, "b", more=True))) is None
    assert (replays.waiting, offsets(replays.whole(part(4, "b", more=False))), replays.waiting) == (1, [3, 4], 0)
    assert offsets(replays.whole(part(5, "a", more=False))) == [5], "the first part was dropped"
    with pytest.raises(Malformed, match="10,000 bytes at most"):
        replays.whole(part(6, "c", more=True, size=10_000))
    assert replays.waiting == 0


def test_a_condition_is_also_over_columns_of_the_sources(site: LetterSite) -> None:
    assert [x["offset"] for x in site.listed("--where", "v LIKE '7%'")] == [1]
    done = site("dlq", "replay", "--dry-run", "--where", "V = '7,5' OR a = 'none'", "--set", "V = 1")
    assert ["in/0@1", "V", "7,5", "1"] in [line.split() for line in done.out.splitlines()], done
    assert "1 record" in done.err


def test_a_dry_run_shows_and_changes_nothing(site: LetterSite) -> None:
    before = site.results()
    done = site("dlq", "replay", *REPAIRS[0], "--dry-run")
    assert done.code == 0, done
    assert ["in/0@1", "V", "7,5", "8"] in [line.split() for line in done.out.splitlines()]
    assert "CTAS_TOTALS" in done.err
    assert topic_name("demo") not in site.instance.admin.topics()
    assert site.results() == before
    assert len(site.listed()) == 4


def test_what_would_fail_again_refuses_all(site: LetterSite) -> None:
    done = site("dlq", "replay", "--where", "value LIKE '{%'", "--set", "V = V")
    assert done.code == 1
    assert "FQ5802" in done.err
    assert "in/0@1" in done.err
    done = site("dlq", "replay", "--set", "V = 1", "--where", "topic = 'in'")
    assert "not a JSON object" in done.err
    assert topic_name("demo") not in site.instance.admin.topics()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--where", "nonsense ="), "FQ5801"),
        (("--where", "x > 1"), "FQ5801"),
        (("--where", "len(list_transform(range(10000), lambda x: range(10000))) > 1"), "FQ5108"),  # ended the command
        (("--set", "W = 1"), "FQ5801"),
        (("--set", "V"), "FQ5801"),
        (("--set", "V = (SELECT content FROM read_text('/etc/passwd'))"), "FQ5801"),
    ],
)
def test_wrong_sql_is_named(site: LetterSite, arguments: tuple[str, ...], code: str) -> None:
    done = site(
        "dlq", "replay", "--dry-run", *(("--where", "topic = 'in'") if arguments[0] == "--set" else ()), *arguments
    )
    assert (done.code, code in done.err) == (1, True), done


def test_a_deployment_that_is_refused_takes_its_repairs_back(site: LetterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    from flowql.errors import CommandError

    def refuse(*_: Any, **__: Any) -> None:
        raise CommandError("no space", code="FQ5209")

    monkeypatch.setattr(site.host.engine, "deploy", refuse)
    done = site("dlq", "replay", *REPAIRS[0])
    assert done.code == 1
    site.instance.repaired.repairs.read_on()
    assert len(site.instance.repaired.repairs) == 0
    assert len(site.listed()) == 4


def test_letters_are_exported(site: LetterSite, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    assert site("dlq", "export", "-o", str(file)).code == 0
    lines = file.read_text().splitlines()
    assert len(lines) == 5
    assert "not json" in file.read_text()


def test_a_replay_does_not_let_serve_what_is_held_back(site: LetterSite) -> None:
    site.sql(over=-1)
    site.deploy("--shadow")
    before = site.results()
    done = site("dlq", "replay", *REPAIRS[0])
    assert (done.code, "held back" in done.err) == (1, True), done
    assert site.instance.deployed.held
    assert site.results() == before


def test_a_second_repair_that_is_refused_leaves_the_first(site: LetterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    from flowql.errors import CommandError
    from flowql.server.service import Service

    assert site("dlq", "replay", *REPAIRS[0]).code == 0
    site.settle()
    repairs = site.instance.repaired.repairs
    first = repairs.get(TopicPartition("in", 0), 1)
    assert first is not None

    def fails(error: Exception) -> None:
        def deploy(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(Service, "deploy", deploy)
        client = connect(site.folder / ".flowql" / "default")
        assert client is not None
        letter = Letter(TopicPartition("in", 0), 1, 1, b"b", b"{}", ())
        with pytest.raises(CommandError):
            replay(client, [Repaired(letter, Repair(b"b", b'{"V": 99}', 1))])
        client.close()
        repairs.read_on()

    fails(CommandError("no", code="FQ5208"))
    assert repairs.get(TopicPartition("in", 0), 1) == first
    fails(OSError("disk"))  # it may have been carried out
    assert repairs.get(TopicPartition("in", 0), 1) == Repair(b"b", b'{"V": 99}', 1)


RATIO = "CREATE TABLE RATIO AS SELECT A % 2 AS P, 100 / MIN(A) AS R, COUNT(*) AS N FROM L GROUP BY A % 2;"


def test_a_row_behind_a_repartition_is_repaired_where_it_was_read(site: LetterSite) -> None:
    """Its letter has no bytes of the record, only its place."""
    (site.folder / "demo.sql").write_text(SOURCE.format(over=5) + RATIO)
    site.deploy()
    site.send("lines", [("b", b"4,x"), ("b", b"0,y"), ("c", b"3,z")])
    where = ("--where", "code = 'FQ4030'")
    (letter,) = site.listed(*where)
    assert (letter["topic"], letter["offset"], letter["failures"][0]["query"]) == ("lines", 3, "CTAS_RATIO")
    shown = site("dlq", "show", "lines/0@3")
    assert "value   0,y" in shown.out, shown
    done = site("dlq", "replay", *where, "--set", "A = 2")
    assert done.code == 0, done
    site.settle()
    assert site.listed(*where) == []
    assert sorted((row["P"], row["R"], row["N"]) for row in site.rows("RATIO")) == [(0, 50, 2), (1, 100, 2)]


def test_bad_records_become_a_test_of_the_project(site: LetterSite) -> None:
    file = site.folder / "tests" / "bad.yaml"
    done = site("dlq", "replay", *REPAIRS[0], "--to-test", str(file))
    assert (done.code, "2 records" in done.err) == (0, True), done
    assert len(site.listed()) == 4, "nothing is repaired"
    text = file.read_text()
    assert "RAW" in text
    done = site("test")
    assert (done.code, "1 passed" in done.out + done.err) == (0, True), done
    site.sql(over=100)
    assert site("test").code == 1, "another query gives something else"
    assert site("dlq", "replay", *REPAIRS[0], "--to-test", str(file)).code == 1, "no file is overwritten"


def test_append_gives_a_record_once_to_the_queries_that_missed_it(site: LetterSite) -> None:
    for repair in REPAIRS:
        done = site("dlq", "replay", *repair, "--append")
        assert done.code == 0, done
    assert site.listed() == []
    once = site.results()
    for query in site.instance.plan.queries:
        assert query.generation == 1, "nothing is rebuilt"
    for repair in REPAIRS:
        assert "nothing to replay" in site("dlq", "replay", *repair, "--append").err
    assert site.results() == once
    assert once["TOTALS"] == [
        '{"K": "a", "TOTAL": 21, "N": 2}',
        '{"K": "b", "TOTAL": 8, "N": 2}',
        '{"K": "c", "TOTAL": 30, "N": 1}',
    ]
    assert once["PER_V"] == ['{"V": 20, "N": 1}', '{"V": 30, "N": 1}', '{"V": 8, "N": 1}']
    site.sql(over=-1)  # a later rebuild reads the repairs at their places, and nothing twice
    site.deploy()
    site.settle()
    again = site.results()
    assert len(again["LARGE"]) == 5
    assert {n: rows for n, rows in again.items() if n not in ("LARGE", "PER_V")} == {
        n: rows for n, rows in once.items() if n not in ("LARGE", "PER_V")
    }
    assert site.listed() == []


def test_append_says_what_a_rebuild_would_not_have(site: LetterSite) -> None:
    done = site("dlq", "replay", *REPAIRS[1], "--where", '"offset" = 3', "--append", "--dry-run")
    assert "to be given to" in done.err
    assert len(site.listed()) == 4
    done = site("dlq", "replay", *REPAIRS[2], "--append")
    assert "CTAS_LINES: 1 rows" in done.err


def test_what_a_query_does_not_take_is_not_marked(site: LetterSite) -> None:
    assert site("pause", "LARGE").code == 0
    from flowql.runtime.app import delivering

    before, delivering.WAIT_S = delivering.WAIT_S, 1.0
    try:
        done = site("dlq", "replay", *REPAIRS[0], "--append")
    finally:
        delivering.WAIT_S = before
    assert (done.code, "CSAS_LARGE does not run" in done.err) == (1, True), done
    left = {x["offset"]: [f["query"] for f in x["failures"]] for x in site.listed("--where", "topic = 'in'")}
    assert left[1] == ["CSAS_LARGE"] or left[1] == ["CSAS_LARGE", "CTAS_TOTALS"]
    assert site("resume", "LARGE").code == 0
    assert site("dlq", "replay", *REPAIRS[0], "--append").code == 0
    site.settle()
    assert [x["offset"] for x in site.listed("--where", "topic = 'in'")] == [3]
    assert sorted(site.results()["LARGE"]) == ['{"K": "a", "V": 20}', '{"K": "b", "V": 8}', '{"K": "c", "V": 30}']


def test_a_large_record_is_appended_as_others_are(site: LetterSite) -> None:
    """A body with one record may be as large as the record is."""
    site.send("in", [("d", json.dumps({"V": "7,5", "NOTE": "x" * 2_500_000}).encode())])
    assert "in/0@5" in site("dlq", "ls").out
    done = site("dlq", "replay", *REPAIRS[0], "--append")
    assert done.code == 0, done.err
    assert {row["K"]: row["TOTAL"] for row in site.rows("TOTALS")} == {"a": 21, "b": 8, "c": 30, "d": 8}
    site.send("lines", [("b", b"two," + b"x" * 200_000)])  # more than Python's csv takes if nothing is said
    done = site("dlq", "replay", *REPAIRS[2], "--append")
    assert done.code == 0, done.err
    assert sorted((row["K"], row["TOTAL"]) for row in site.rows("LINES")) == [("a", 3), ("b", 2)]


def test_a_record_that_a_query_could_read_is_not_given_to_it_once_more(site: LetterSite) -> None:
    (site.folder / "demo.sql").write_text(SOURCE.format(over=5) + RATIO)
    site.deploy()
    site.send("lines", [("b", b"4,x"), ("b", b"0,y"), ("c", b"3,z")])
    before = sorted((row["P"], row["N"]) for row in site.rows("RATIO"))
    done = site("dlq", "replay", "--where", "code = 'FQ4030'", "--set", "A = 2", "--append")
    assert (done.code, "counts twice" in done.err) == (1, True), done
    assert sorted((row["P"], row["N"]) for row in site.rows("RATIO")) == before


def test_targets_on_spark_refuse_repairs_by_name(flowql: Program, tmp_path: Path) -> None:
    """Their jobs would read the records as they were."""
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: demo.sql\ntargets: {lake: {engine: spark}}\n")
    (tmp_path / "demo.sql").write_text(SOURCE.format(over=5))
    for how in ((), ("--append",), ("--dry-run",)):
        done = flowql("dlq", "replay", "--set", "V = 1", *how, "-p", str(tmp_path), "-t", "lake")
        assert (done.code, "Spark" in done.err, "engine: runtime" in done.err) == (1, True, True), done
