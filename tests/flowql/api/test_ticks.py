"""A session reads what it has written, and never less than it has read, here, over a URL and on the command line."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.query import at_least
from flowql.query.tick_text import as_ends
from tests.flowql.api.shop import TOKEN, WAIT_S, Shop, project
from tests.flowql.cli.conftest import flowql as flowql_program  # noqa: F401
from tests.flowql.cli.program import Program
from tests.gateway import served_here

pytestmark = pytest.mark.turns("servers")

SQL = """
CREATE TABLE own (id INT PRIMARY KEY, n INT) WITH (PARTITIONS = 3);
CREATE VIEW sums AS SELECT n % 5 AS k, sum(n) AS s FROM own GROUP BY n % 5;
CREATE TABLE sent (id INT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC = 'sent', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE VIEW sents AS SELECT count(*) AS c, sum(n) AS s FROM sent;
CREATE VIEW total AS SELECT sum(s) AS t FROM sums;
"""
TOTAL, BOTH = "SELECT t FROM total", "SELECT t, (SELECT sum(s) FROM sums) AS s FROM total"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(at_least, "WAIT_S", WAIT_S)  # other tests may take the processors
    url = project(tmp_path / "shop", SQL, "dialect: standard\n")
    with served_here(), flowql.Instance(tmp_path / "shop") as instance:
        made = Shop(tmp_path / "shop", url, instance)
        yield made
        made.remote.close()


def test_answers_show_what_a_connection_has_written(shop: Shop) -> None:
    assert shop.local.tick == ""
    n, expected = 0, 0
    for connection, other in ((shop.local, shop.remote), (shop.remote, shop.local)):
        for query in (TOTAL, BOTH) * 4:
            n, expected = n + 1, expected + n + 1
            if n % 3:
                connection.execute(f"INSERT INTO own VALUES ({n}, {n})")
            else:
                connection.returning(f"INSERT INTO own VALUES ({n}, {n}) RETURNING n")
            row = next(iter(other.sql(query, at_least=connection.tick)))
            assert {*row.values()} == {expected}, f"row {n}"
            assert other.tick.startswith("own/0:"), "it has seen this tick"


def test_a_change_of_many_rows_and_one_of_none_have_ticks(shop: Shop) -> None:
    shop.local.execute("INSERT INTO own VALUES " + ", ".join(f"({n}, 1)" for n in range(500)))
    assert shop.remote.sql(TOTAL, at_least=shop.local.tick).one() == 500
    before = shop.local.tick
    shop.local.execute("DELETE FROM own WHERE id = -1")
    assert shop.local.tick == before


def test_answers_show_what_a_connection_has_produced(shop: Shop) -> None:
    """As a whole, and in batches, which hand the tick on too."""
    written = 0
    for connection, other in ((shop.local, shop.remote), (shop.remote, shop.local)) * 2:
        assert connection.produce("sent", [{"id": written + n, "n": 1} for n in range(3)]) == 3
        written += 3
        assert other.sql("SELECT c FROM sents", at_least=connection.tick).one() == written
        batches = list(connection.batches("SELECT c, s FROM sents", at_least=other.tick))
        assert [row for b in batches for row in b.to_pylist()] == [{"c": written, "s": written}]
        ends = as_ends(connection.tick)
        assert all(ends[tp] >= end for tp, end in as_ends(other.tick).items())


def test_the_same_over_http(shop: Shop) -> None:
    def post(path: str, body: dict[str, Any] | None, **more: str) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **more}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(shop.url + path, data, headers)
        with urllib.request.urlopen(request) as reply:
            return json.loads(reply.read())

    (done,) = post("/v1/execute", {"statements": "INSERT INTO own VALUES (1, 7)"})["statements"]
    found = post("/v1/query", {"sql": TOTAL, "at_least": done["tick"]})
    assert [int(row["t"]) for row in found["rows"]] == [7]
    assert as_ends(found["tick"]).keys() == as_ends(done["tick"]).keys()
    looked_up = post("/v1/tables/sums/rows?k=2", None, **{"At-Least": done["tick"]})
    assert ([int(row["s"]) for row in looked_up["rows"]], bool(looked_up["tick"])) == ([7], True)
    sent = post("/v1/streams/sent/rows", {"id": 1, "n": 7})
    assert sent["rows"] == 1
    found = post("/v1/query", {"sql": "SELECT s FROM sents", "at_least": sent["tick"]})
    assert [int(row["s"]) for row in found["rows"]] == [7]
    assert "tick" not in post("/v1/query", {"sql": TOTAL})
    assert post("/v1/query", {"sql": TOTAL, "at_least": ""})["tick"], "a session may begin with a query"


def test_a_tick_that_cannot_be_shown_is_an_error_that_says_why(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_least, "WAIT_S", 0.2)
    for tick, code, says in (
        ("tomorrow", "FQ5102", "'tomorrow' is not a tick"),
        ("own/0:99", "FQ5112", "total did not show the tick within 0.2 s"),
    ):
        with pytest.raises(flowql.CommandError, match=says) as error:
            shop.remote.sql(TOTAL, at_least=tick)
        assert error.value.code == code
    shop.local.execute("INSERT INTO own VALUES (1, 7)")
    with monkeypatch.context() as patient:
        patient.setattr(at_least, "WAIT_S", WAIT_S)
        assert shop.remote.sql(TOTAL, at_least=shop.local.tick).one() == 7, "else the pause may come first"
    shop.local.pause("sums")
    shop.local.execute("INSERT INTO own VALUES (2, 8)")
    with pytest.raises(flowql.CommandError, match="did not show the tick"):
        shop.remote.sql(TOTAL, at_least=shop.local.tick)
    assert shop.remote.sql(TOTAL, at_least="other/0:99").one() == 7, "nothing of it is made of that"
    shop.local.resume("sums")
    monkeypatch.setattr(at_least, "WAIT_S", WAIT_S)
    assert shop.remote.sql(TOTAL, at_least=shop.local.tick).one() == 15
    shop.instance.stop()
    with flowql.connect(shop.folder) as at_rest, pytest.raises(flowql.CommandError, match="no instance runs"):
        at_rest.sql(TOTAL, at_least="own/0:1")


def test_commands_hand_a_tick_on(shop: Shop, flowql_program: Program) -> None:  # noqa: F811
    folder = ("-p", str(shop.folder))
    for n in range(1, 4):
        (done,) = json.loads(flowql_program("exec", f"INSERT INTO own VALUES ({n}, 2)", "-o", "json", *folder).out)
        found = flowql_program("query", TOTAL, "--at-least", done["tick"], "-o", "json", *folder)
        assert [int(row["t"]) for row in json.loads(found.out)] == [2 * n], found.err


def test_queries_that_follow_no_ticks_say_so(tmp_path: Path) -> None:
    sql = (
        "CREATE STREAM s (id INT, n INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"
        "CREATE TABLE sums AS SELECT id, SUM(n) AS t FROM s GROUP BY id EMIT CHANGES;"
    )
    project(tmp_path / "shop", sql)
    with flowql.Instance(tmp_path / "shop") as instance:
        instance.connection.execute("INSERT INTO s VALUES (1, 7)")
        with pytest.raises(flowql.CommandError, match="ticks are for views of standard SQL"):
            instance.connection.sql("SELECT * FROM SUMS", at_least=instance.connection.tick)
