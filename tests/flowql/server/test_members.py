"""Interactive queries to an application that several instances share on a real Kafka: answered by all of them, or by how many is said."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections import Counter
from contextlib import closing

import httpx
import pytest

from flowql.deploy.request import DeployRequest
from flowql.deploy.settings import Settings
from flowql.query import session
from flowql.query.errors import COVERAGE, MISSING
from flowql.query.room import QueryMemory, Room
from flowql.runtime.app.member_topic import MemberAddress, MemberReader, write_member
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.server import members
from flowql.server.choice import at_rest
from flowql.server.host import Host
from flowql.server.running import connect
from tests.flowql.cli.conftest import flowql
from tests.flowql.query.harness import plan_of
from tests.runtime.log.records import batch

__all__ = ["flowql"]

pytestmark = [pytest.mark.kafka, pytest.mark.turns("servers")]
PARTITIONS, KEYS, RECORDS, WAIT_S = 4, 40, 1_000, 90.0
SQL = """
CREATE STREAM ORDERS (ID STRING KEY, CUSTOMER STRING, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC='${p}-orders', PARTITIONS=4, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE TOTALS WITH (KAFKA_TOPIC='${p}-totals') AS
  SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER EMIT CHANGES;
CREATE TABLE BIGGEST WITH (KAFKA_TOPIC='${p}-biggest') AS
  SELECT CUSTOMER, MAX(AMOUNT) AS TOP FROM ORDERS GROUP BY CUSTOMER EMIT CHANGES;
"""
EXPECTED = {
    "SELECT COUNT(*), SUM(n)::BIGINT FROM totals": lambda of: [(len(of), sum(n for n, _, _ in of.values()))],
    "SELECT AVG(n) FROM totals": lambda of: [(sum(n for n, _, _ in of.values()) / len(of),)],
    "SELECT COUNT(DISTINCT n) FROM totals": lambda of: [(len({n for n, _, _ in of.values()}),)],
    "SELECT customer, total FROM totals ORDER BY total DESC, customer LIMIT 3": lambda of: sorted(
        ((c, t) for c, (_, t, _) in of.items()), key=lambda r: (-r[1], r[0])
    )[:3],
    "SELECT n FROM totals WHERE customer = 'c7'": lambda of: [(of["c7"][0],)],
    "SELECT COUNT(*) FROM totals JOIN biggest USING (customer) WHERE top <= total": lambda of: [(len(of),)],
    "SELECT SUM(\"ROWS\")::BIGINT FROM flowql_stores WHERE store LIKE 'CTAS_TOTALS%'": lambda of: [(len(of),)],
    "SELECT COUNT(*) FROM orders": lambda of: [(RECORDS,)],
}


class KafkaApplication:
    """An application on the session's broker, and its instances."""

    def __init__(self, folder, bootstrap):
        self.app, self.folder, self.kafka = f"m{uuid.uuid4().hex[:8]}", folder, KafkaSettings(bootstrap, shared=True)
        self.log = KafkaLog(Connection(bootstrap), self.app)
        self.log.create_topic(f"{self.app}-orders", PARTITIONS)
        self.sql = SQL.replace("${p}", self.app)
        self.hosts = {}

    def start(self, name):
        host = Host(Settings(self.folder / name, self.app, 1, 64 << 20, kafka=self.kafka))
        host.start()
        self.hosts[name] = host
        return host

    def feed(self):
        """Orders; what they come to by customer."""
        rows = [(n, b"o%d" % n, {"CUSTOMER": f"c{min(n % KEYS, n % 37)}", "AMOUNT": n % 97}) for n in range(RECORDS)]
        producer = self.log.producer(f"{self.app}-source")
        producer.begin()
        for p in range(PARTITIONS):
            mine = [(at, k, json.dumps(v).encode()) for at, k, v in rows if at % PARTITIONS == p]
            producer.send(TopicPartition(f"{self.app}-orders", p), batch(mine))
        producer.commit()
        producer.close()
        of = {}
        for _, _, v in rows:
            n, total, top = of.get(v["CUSTOMER"], (0, 0, 0))
            of[v["CUSTOMER"]] = n + 1, total + v["AMOUNT"], max(top, v["AMOUNT"])
        return of

    def ask(self, name, sql):
        with closing(connect(self.folder / name)) as client, client.answer(sql) as answer:
            table = answer.table()
        return table, [tuple(r.values()) for r in table.to_pylist()]

    def close(self):
        for host in self.hosts.values():
            host.close()
        self.log.close()


@pytest.fixture
def world(tmp_path, kafka):
    made = KafkaApplication(tmp_path, kafka)
    yield made
    made.close()


def until(done):
    limit = time.monotonic() + WAIT_S
    while not (found := done()):
        assert time.monotonic() < limit
        time.sleep(0.1)
    return found


def shares(world):
    """Tasks in the answers of each instance alone."""
    found = Counter()
    for name, host in world.hosts.items():
        with host.engine.instance.snapshot() as snapshot:
            found[name] = sum("/" in task for task in snapshot.owned)
    return found


def settled(world, of):
    """Two instances share the tasks (one query reads the repartition of the other's key: 2 x 4 of each) and all is processed."""
    query = "SELECT COUNT(*), SUM(n)::BIGINT FROM totals"
    until(lambda: all(shares(world)[name] for name in world.hosts) and sum(shares(world).values()) == 4 * PARTITIONS)
    until(lambda: world.ask("one", query)[1] == EXPECTED[query](of))
    until(lambda: world.ask("one", "SELECT COUNT(*) FROM biggest")[1] == [(len(of),)])


def test_every_instance_answers_for_all_partitions(world):
    first = world.start("one")
    first.service.deploy(plan_of(world.sql))
    of = world.feed()
    world.start("two")
    settled(world, of)
    for name in ("one", "two"):
        for sql, expected in EXPECTED.items():
            table, rows = world.ask(name, sql)
            assert rows == expected(of), (name, sql)
            if "flowql_stores" not in sql and "FROM orders" not in sql:
                tasks = 2 * PARTITIONS if "JOIN" in sql else PARTITIONS
                assert table.schema.metadata[COVERAGE] == f"{tasks} of {tasks} partitions".encode(), sql
            assert MISSING not in table.schema.metadata
    address = connect(world.folder / "two").address
    said = httpx.post(
        f"http://127.0.0.1:{address.port}/v1/query",
        json={"sql": "SELECT * FROM totals"},
        headers={"Authorization": f"Bearer {address.token}"},
    )
    assert said.headers["flowql-partitions"] == "4 of 4 partitions"


def test_an_answer_without_all_instances_says_of_how_many_partitions_it_is(world, flowql, monkeypatch, tmp_path):
    monkeypatch.setattr(session, "MOVING_S", 0.5)
    monkeypatch.setattr(members, "SILENT_S", 0.5)
    first = world.start("one")
    first.service.deploy(plan_of(world.sql))
    of = world.feed()
    second = world.start("two")
    settled(world, of)
    own = second.engine.instance.config.process_id
    known = MemberReader(world.log, world.app).read()
    assert set(known) == {own, first.engine.instance.config.process_id}

    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        for gone in (MemberAddress("127.0.0.1", 1, "t"), MemberAddress("127.0.0.1", silent.getsockname()[1], "t")):
            write_member(world.log, world.app, own, gone, 0)
            begun = time.monotonic()
            table, rows = world.ask("one", "SELECT COUNT(*), SUM(n)::BIGINT FROM totals")
            assert time.monotonic() - begun < 10
            assert table.schema.metadata[COVERAGE] == b"2 of 4 partitions"
            assert str(gone) in table.schema.metadata[MISSING].decode()
            assert "no instance answers for TOTALS of partitions" in table.schema.metadata[MISSING].decode()
            assert 0 < rows[0][0] < len(of)
            write_member(world.log, world.app, own, known[own], 0)
            assert world.ask("one", "SELECT COUNT(*) FROM totals")[1] == [(len(of),)]

    (tmp_path / "p.sql").write_text(world.sql)
    (tmp_path / "flowql.yaml").write_text(
        f"name: p\nsql: p.sql\ntargets:\n  default: {{log: kafka, data_dir: one, kafka: {{bootstrap: '{world.kafka.bootstrap}',"
        f" app_id: {world.app}, instances: many}}}}\n"
    )
    ask = ("query", "-p", str(tmp_path), "SELECT COUNT(*) AS N FROM totals")
    assert json.loads(flowql(*ask, "-o", "json").out) == [{"N": len(of)}]
    write_member(world.log, world.app, own, MemberAddress("127.0.0.1", 1, "t"), 0)
    said = flowql(*ask)
    assert "note: this answer is about 2 of 4 partitions: 127.0.0.1:1 does not answer" in said.err
    document = json.loads(flowql(*ask, "-o", "json").out)
    assert document["partitions"] == "2 of 4 partitions"
    assert document["missing"].startswith("127.0.0.1:1 does not answer")
    assert 0 < document["rows"][0]["N"] < len(of)


def test_the_port_for_other_instances_gives_rows_for_its_token_and_nothing_else(world):
    first = world.start("one")
    first.service.deploy(plan_of(world.sql))
    own = MemberReader(world.log, world.app).read()[first.engine.instance.config.process_id]
    main = connect(world.folder / "one").address
    url, mine = f"http://{own}", {"Authorization": f"Bearer {own.token}"}
    asked = {"wanted": [{"relation": "TOTALS", "definition": "", "conditions": [], "columns": None}]}
    assert httpx.post(f"{url}/rows", json=asked, headers=mine).status_code == 200
    assert httpx.post(f"{url}/rows", json=asked).status_code == 401
    assert httpx.post(f"{url}/rows", json=asked, headers={"Authorization": f"Bearer {main.token}"}).status_code == 401
    for path in ("/v1/query", "/v1/status", "/stop", "/v1/plan"):
        assert httpx.post(f"{url}{path}", headers=mine).status_code == 404
    assert httpx.get(f"http://127.0.0.1:{main.port}/v1/status", headers=mine).status_code == 401
    for wrong in (b"", b"{", b"[]", b'{"wanted": [{}]}', b'{"wanted": 3}', b"\xff"):
        assert httpx.post(f"{url}/rows", content=wrong, headers=mine).status_code == 400, wrong
    assert httpx.post(f"{url}/rows", content=b"[" * (2 << 20), headers=mine).status_code == 413
    first.close()
    until(lambda: not MemberReader(world.log, world.app).read())  # who stops says so


def test_a_stopped_instance_asks_those_that_run(world):
    first = world.start("one")
    first.service.deploy(plan_of(world.sql))
    of = world.feed()
    second = world.start("two")
    settled(world, of)
    second.close()
    world.hosts.pop("two")
    until(lambda: shares(world)["one"] == 4 * PARTITIONS)
    settings = Settings(world.folder / "two", world.app, 1, 64 << 20, kafka=world.kafka)
    with at_rest(settings).commits() as take:
        table = session.evaluate("SELECT COUNT(*) AS N FROM totals", take)
        assert (table.to_pylist(), table.schema.metadata[COVERAGE]) == ([{"N": len(of)}], b"4 of 4 partitions")
    world.feed()
    until(lambda: world.ask("one", "SELECT SUM(n)::BIGINT FROM totals")[1] == [(2 * RECORDS,)])
    first.close()
    world.hosts.clear()
    with at_rest(settings).commits() as take:  # what it had then is old by now
        table = session.evaluate("SELECT COUNT(*) AS N FROM totals", take)
    assert table.schema.metadata[COVERAGE] == b"0 of 4 partitions"
    with at_rest(Settings(world.folder / "one", world.app, 1, 64 << 20, kafka=world.kafka)).commits() as take:
        table = session.evaluate("SELECT COUNT(*) AS N FROM totals", take)
        assert (table.to_pylist(), table.schema.metadata[COVERAGE]) == ([{"N": len(of)}], b"4 of 4 partitions")


def test_without_brokers_the_members_that_are_known_are_none(world):
    class Away:
        def admin(self):
            raise LogError("away")

    found = members.Members(Away(), world.app, "x", None).rows([], Room(QueryMemory(1)))
    assert found == ([], ["other instances are not known: away"])


def test_topics_of_a_removed_query_go_once_all_instances_have_the_plan(world):
    def internal():
        return {t for t in world.log.topics() if t.startswith(world.app) and t.endswith(("-changelog", "-repartition"))}

    first = world.start("one")
    first.service.deploy(plan_of(world.sql))
    of = world.feed()
    world.start("two")
    settled(world, of)
    before = internal()
    assert any("BIGGEST" in t for t in before)
    kept = world.sql[: world.sql.index("CREATE TABLE BIGGEST")]
    first.service.deploy(plan_of(kept), DeployRequest(prune=True))
    until(lambda: not any("BIGGEST" in t for t in internal()))
    assert {t for t in before if "BIGGEST" not in t} == internal()
    world.feed()
    until(lambda: world.ask("one", "SELECT SUM(n)::BIGINT FROM totals")[1] == [(2 * RECORDS,)])
