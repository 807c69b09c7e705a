"""An instance on a real broker in trouble: what concerns one query stops that query, and everything goes on by itself."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from itertools import pairwise

import orjson
import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Kind

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.deploy.engine import open_on
from flowql.kafka.broker import Broker
from flowql.runtime.app.progress import query_status
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import Fenced, LogDenied
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka import producer as producers
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.permissions import missing_permissions
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.task import dead_letters
from tests.kafka_broker import QUICK
from tests.kafka_wire import Wire, free_ports
from tests.runtime.log.records import batch as rows
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
WAIT_S = 120.0
OUTAGE_S = 4.0
USER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "flowql"}
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="b" user_flowql="secret";'
)
SOURCE = """CREATE STREAM S (K STRING KEY, V INT, T STRING)
  WITH (KAFKA_TOPIC='{app}-s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
QUERY = "CREATE STREAM {name} WITH (KAFKA_TOPIC='{app}-{name}') AS SELECT K, V, T FROM S EMIT CHANGES;\n"
TABLE = (
    "CREATE TABLE {name} WITH (KAFKA_TOPIC='{app}-{name}') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;\n"
)


COPY = """CREATE STREAM {name}_IN (K STRING KEY, V INT)
  WITH (KAFKA_TOPIC='{app}-{name}-in', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM {name} WITH (KAFKA_TOPIC='{app}-{name}') AS SELECT K, V FROM {name}_IN EMIT CHANGES;
"""


class Guarded(Broker):
    """A broker that asks who it is, and what they may do; reached over a wire. At its plain port everybody may do everything."""

    def __init__(self, directory, wire):
        super().__init__(directory)
        self.plain, self.controller, self.inner, self.wire = *free_ports(3), wire
        wire.target = self.inner

    def _ports(self, wanted):
        return self.plain, self.controller

    def start_guarded(self):
        plain, wired = f"PLAINTEXT://127.0.0.1:{self.plain}", "WIRE://127.0.0.1:"
        properties = {
            "listeners": f"{plain},{wired}{self.inner},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"{plain},{wired}{self.wire.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,WIRE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.wire.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }
        return self.start(java_options=QUICK, properties=properties).bootstrap


@pytest.fixture(scope="module")
def wire():
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def plain(kafka_broker, tmp_path_factory, wire):
    """Where the tests themselves go, past the wire."""
    broker = Guarded(tmp_path_factory.mktemp("guarded"), wire)  # `kafka_broker` has told whether there can be one
    yield broker.start_guarded()
    broker.kill()


class BrokerHarness:
    """An instance that comes over the wire, and clients of the test that do not."""

    def __init__(self, plain, wire, folder, password="secret"):
        self.app = f"i{uuid.uuid4().hex[:8]}"
        self.plain = KafkaLog(Connection(plain), f"{self.app}-outside")
        self.admin = AdminClient({"bootstrap.servers": plain})
        options = {**USER, "sasl.password": password}
        self.log = KafkaLog(Connection(f"127.0.0.1:{wire.port}", options), self.app)
        self.folder, self.sent = folder, 0

    def start(self, *queries):
        self.instance = open_on(self.log, self.folder / "state", InstanceConfig(self.app, changelogs=True))
        self.instance.start()
        self.deploy(*queries)
        self.producer = self.plain.producer(f"{self.app}-feed")

    def deploy(self, *queries):
        compiled = compile_project([SourceText("t.sql", (SOURCE + "".join(queries)).format(app=self.app))])
        assert compiled.ok, compiled.diagnostics
        self.instance.deploy(compiled.plan)

    def letters(self):
        reader = self.plain.reader(TopicPartition(dead_letters.topic_name(self.app), 0), EARLIEST)
        values = []
        while (batch := reader.read(10_000, 1 << 24)) is not None:
            values += batch.records.column("value").to_pylist()
        return [letter for letter in map(orjson.loads, filter(None, values)) if letter.get("CODE")]

    def send(self, n, text="x", topics=("s",), at_ms=1000):
        self.producer.begin()
        for p in range(2):
            mine = [v for v in range(self.sent, self.sent + n) if v % 2 == p]
            values = [b'{"V":%d,"T":"%s"}' % (v, text.encode()) for v in mine]
            columns = [[at_ms + v for v in mine], [b"k"] * len(mine), values, [None] * len(mine)]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)
            for topic in topics:
                self.producer.send(TopicPartition(f"{self.app}-{topic}", p), batch)
        self.producer.commit()
        self.sent += n

    def values(self, name):
        """How often each V is there."""
        found = Counter()
        for p in range(2):
            reader = self.plain.reader(TopicPartition(f"{self.app}-{name}", p), EARLIEST)
            while (batch := reader.read(10_000, 1 << 24)) is not None:
                found.update(orjson.loads(v)["V"] for v in batch.records.column("value").to_pylist())
        return found

    def state(self, query):
        return query_status(self.instance, query)["state"]

    def error(self, query):
        return query_status(self.instance, query)["last_error"]

    def until(self, done, what):
        limit = time.monotonic() + WAIT_S
        while not done():
            assert self.instance.fatal is None, self.instance.fatal
            assert time.monotonic() < limit, (what, {q: self.error(q) for q in self.instance.queries})
            time.sleep(0.05)

    def until_there(self, *names):
        """Everything sent is in these topics, once."""
        for name in names:
            self.until(lambda name=name: sum(self.values(name).values()) >= self.sent, name)
            assert self.values(name) == Counter(range(self.sent))


@pytest.fixture
def world(plain, wire, tmp_path):
    made = BrokerHarness(plain, wire, tmp_path)
    yield made
    wire.mend()
    assert made.instance.stop() == []


def deny(world, topic, operation):
    """What is not named is allowed, as before there was a rule. Gives what takes it back."""
    rule = Kind.TOPIC, topic, Pattern.LITERAL, "User:flowql", "*"
    bindings = [
        AclBinding(*rule, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*rule, operation, AclPermissionType.DENY),
    ]
    for future in world.admin.create_acls(bindings).values():
        future.result()
    return [AclBindingFilter(*rule, operation, AclPermissionType.DENY)]


def of_guide(world, source, result):
    """Rules that the commands of the guide make."""
    names = {"SOURCE": source, "RESULT": result, "APP_ID": world.app}
    kinds = {"--topic": Kind.TOPIC, "--group": Kind.GROUP, "--transactional-id": Kind.TRANSACTIONAL_ID}
    made = []
    for line in (ROOT / "docs/guide/kafka-topics.md").read_text().splitlines():
        if line.startswith("kafka-acls.sh"):
            words = line.split()
            options = list(pairwise(words))
            kind, name = next((kinds[option], names[value]) for option, value in options if option in kinds)
            pattern = Pattern.PREFIXED if "prefixed" in words else Pattern.LITERAL
            operations = [
                re.sub("(?!^)(?=[A-Z])", "_", value).upper() for option, value in options if option == "--operation"
            ]
            made += [
                AclBinding(kind, name, pattern, "User:flowql", "*", AclOperation[o], AclPermissionType.ALLOW)
                for o in operations
            ]
    return made


@pytest.mark.turns("kafka")
def test_the_permissions_of_the_guide_are_enough(world):
    """Of all topics, groups and transactional ids the user may use those alone that the guide names."""
    source, result = f"src-{world.app}", f"out-{world.app}"
    everything = (Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID)
    others = [
        AclBinding(kind, "*", Pattern.LITERAL, "User:other", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind in everything
    ]
    rules = [*others, *of_guide(world, source, result)]
    assert len(rules) > len(others)
    world.plain.create_topic(source, 2)
    for future in world.admin.create_acls(rules).values():
        future.result()
    try:
        sql = SOURCE.replace("{app}-s", source) + TABLE.format(name="counted", app="out").replace("out-counted", result)
        compiled = compile_project([SourceText("t.sql", sql)])
        assert compiled.ok, compiled.diagnostics
        world.instance = open_on(world.log, world.folder / "state", InstanceConfig(world.app, changelogs=True))
        world.instance.start()
        world.instance.deploy(compiled.plan)
        producer = world.plain.producer(f"{world.app}-feed")
        producer.begin()
        producer.send(TopicPartition(source, 0), rows([(1, b"k", b'{"V": 7}')]))
        producer.commit()
        ends = [TopicPartition(result, p) for p in range(2)]
        world.until(lambda: sum(world.plain.end_offsets(ends).values()) > 0, "a result that is committed")
        assert world.error("CTAS_COUNTED") is None
    finally:
        allow(world, [lift(b) for b in rules])


@pytest.mark.turns("kafka")
def test_changelogs_of_a_pruned_query_go_and_come_back_with_it(world):
    def changelogs():
        return {t for t in world.plain.topics() if t.startswith(f"{world.app}-CTAS_N") and t.endswith("-changelog")}

    table = TABLE.format(name="n", app="{app}")
    world.start(QUERY.format(name="good", app="{app}"), table)
    world.send(20)
    world.until_there("good")
    before = changelogs()
    assert before
    world.deploy(QUERY.format(name="good", app="{app}"))
    world.until(lambda: not changelogs(), "changelogs are deleted")
    world.deploy(QUERY.format(name="good", app="{app}"), table)
    world.send(20)
    world.until_there("good")
    world.until(lambda: len(changelogs()) == len(before), "changelogs of the new query")
    ends = [TopicPartition(t, p) for t in changelogs() for p in range(2)]
    world.until(lambda: sum(world.plain.end_offsets(ends).values()) > 0, "state of the new query")
    assert world.state("CTAS_N@2") == "running"


@pytest.mark.turns("kafka")
def test_doctor_names_the_commands_that_give_what_is_missing(plain, wire, tmp_path):
    """Each permission that is taken away comes back by the command that doctor prints, which is one of the guide's."""
    world = BrokerHarness(plain, wire, tmp_path)
    source, result = f"src-{world.app}", f"out-{world.app}"
    everything = (Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID)
    others = [
        AclBinding(kind, "*", Pattern.LITERAL, "User:other", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind in everything
    ]
    given, bootstrap = of_guide(world, source, result), f"127.0.0.1:{wire.port}"
    world.plain.create_topic(source, 2)
    settings = KafkaSettings(bootstrap, {**USER, "sasl.password": "secret"})

    def missing():
        return missing_permissions(settings, world.app, [source], [result])

    def until(wanted):
        limit = time.monotonic() + WAIT_S
        while (found := [(m.name, m.operations) for m in missing()]) != wanted:
            assert time.monotonic() < limit, found
            time.sleep(0.05)

    def commands():
        return "\n".join(m.command("BROKER", "flowql") for m in missing())

    guide = "\n".join(
        line.replace("SOURCE", source).replace("RESULT", result).replace("APP_ID", world.app)
        for line in (ROOT / "docs/guide/kafka-topics.md").read_text().splitlines()
        if line.startswith("kafka-acls.sh")
    )
    for future in world.admin.create_acls(others).values():
        future.result()
    try:
        assert set(commands().splitlines()) == set(guide.splitlines())
        for future in world.admin.create_acls(given).values():
            future.result()
        until([])
        world.plain.create_topic(result, 2)
        assert not missing()
        allow(world, [lift(b) for b in given if (b.name, b.operation) == (result, AclOperation.WRITE)])
        until([(result, ("Write",))])
    finally:
        allow(world, [lift(b) for b in (*others, *given)])


def lift(b):
    return AclBindingFilter(
        b.restype, b.name, b.resource_pattern_type, b.principal, "*", b.operation, AclPermissionType.ALLOW
    )


def allow(world, rules):
    for future in world.admin.delete_acls(rules).values():
        future.result()


@pytest.mark.turns("kafka")
def test_what_the_broker_refuses_of_a_query_stops_that_query_alone(world):
    names = ("large", "denied", "gone", "good")
    world.start(*(QUERY.format(name=name, app="{app}") for name in names))
    world.send(20)
    world.until_there(*names)
    world.plain.alter_topic(f"{world.app}-large", {"max.message.bytes": "1500"})
    rule = deny(world, f"{world.app}-denied", AclOperation.WRITE)
    world.plain.delete_topic(f"{world.app}-gone")
    world.send(20, "y" * 3000)
    world.until_there("good")
    for name, code in (("large", "RecordRefused"), ("denied", "LogDenied"), ("gone", "TopicMissing")):
        query = f"CSAS_{name.upper()}"
        world.until(lambda query=query, code=code: code in (world.error(query) or ""), query)
    assert world.state("CSAS_GOOD") == "running"
    world.plain.alter_topic(f"{world.app}-large", {"max.message.bytes": None})
    allow(world, rule)
    world.plain.create_topic(f"{world.app}-gone", 2)
    world.send(20)
    world.until_there("denied", "good")
    kept = Counter([*range(20), *range(40, 60)])  # the records too large for their topic are dead letters
    world.until(lambda: world.values("large") == kept, "large")
    world.until(lambda: sum(world.values("gone").values()) >= 40, "gone")
    assert world.values("gone") == Counter(range(20, 60))


@pytest.mark.turns("kafka")
def test_a_record_too_far_ahead_and_a_topic_of_arrival_times_lose_no_event_time(world):
    """Brokers refuse results more than an hour ahead (KIP-937), and replace times where a topic has LogAppendTime."""
    world.plain.create_topic(f"{world.app}-late", 2, {"message.timestamp.type": "LogAppendTime"})
    world.start(
        *(QUERY.format(name=name, app="{app}") for name in ("copy", "late")), TABLE.format(name="n", app="{app}")
    )
    world.plain.alter_topic(f"{world.app}-s", {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    world.send(4)
    world.until_there("copy")
    world.send(2, at_ms=int(time.time() * 1000) + 86_400_000)
    world.send(4)
    kept = Counter([*range(4), *range(6, 10)])
    world.until(lambda: world.values("copy") == kept, "copy")
    world.until(lambda: len(world.letters()) == 4, "letters")
    assert all(letter["CODE"] == "FQ4087" for letter in world.letters())
    assert all("message.timestamp.after.max.ms" in letter["MESSAGE"] for letter in world.letters())
    assert "LogAppendTime" in world.error("CSAS_LATE")
    assert world.values("late") == {}


def test_readers_go_on_when_they_may_read_again(world):
    """Also those of a topic of which they were not even told that it exists."""
    topics = ("s", "read-in", "hidden-in")
    world.start(QUERY.format(name="good", app="{app}"), *(COPY.format(name=n, app="{app}") for n in ("read", "hidden")))
    world.send(20, topics=topics)
    world.until_there("good", "read", "hidden")
    rules = [
        *deny(world, f"{world.app}-read-in", AclOperation.READ),
        *deny(world, f"{world.app}-hidden-in", AclOperation.ALL),
    ]
    world.until(lambda: all(world.state(f"CSAS_{q}") == "failed" for q in ("READ", "HIDDEN")), "denied")
    world.send(20, topics=topics)
    world.until_there("good")
    assert all("LogDenied" in world.error(f"CSAS_{q}") for q in ("READ", "HIDDEN"))
    assert world.state("CSAS_GOOD") == "running"
    allow(world, rules)
    world.send(20, topics=topics)
    world.until_there("good", "read", "hidden")


@pytest.mark.turns("kafka")
def test_a_topic_that_was_made_anew_is_not_read_on(world):
    """Its readers went on at their positions: the first records of the new topic were in no result, without a word."""
    queries = QUERY.format(name="good", app="{app}"), COPY.format(name="copy", app="{app}")
    world.start(*queries)
    world.send(20, topics=("s", "copy-in"))
    world.until_there("good", "copy")
    assert world.instance.stop() == []
    world.plain.delete_topic(f"{world.app}-copy-in")
    world.plain.create_topic(f"{world.app}-copy-in", 2)
    world.send(60, topics=("s", "copy-in"))
    world.start(*queries)
    world.until_there("good")
    assert world.state("CSAS_COPY") == "error"
    assert "the topic was deleted and created again" in world.error("CSAS_COPY")
    assert world.values("copy") == Counter(range(20))


def test_an_instance_whose_transaction_the_brokers_have_ended_goes_on_until_another_takes_over(world, plain):
    """As one that was suspended for longer than a transaction may take: its producer is fenced, and nobody has its place."""
    world.start(QUERY.format(name="copy", app="{app}"))
    for _ in range(2):
        world.send(20)
        world.until_there("copy")
        world.plain.producer(world.app).close()  # what brokers do then
    world.send(20)
    world.until_there("copy")
    other = KafkaLog(Connection(plain), world.app)
    other.hold(world.app)
    world.instance.commit.dirty = True
    limit = time.monotonic() + WAIT_S
    while world.instance.fatal is None:
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert isinstance(world.instance.fatal, Fenced)
    other.close()


@pytest.mark.turns("kafka")
def test_an_outage_is_waited_for(world, wire, monkeypatch):
    """Also when it takes longer than any call is waited for."""
    for module, name in ((producers, "COMMIT_S"), (producers, "INIT_S"), (producers, "CALL_S"), (admins, "TIMEOUT_S")):
        monkeypatch.setattr(module, name, 1.0)
    world.start(QUERY.format(name="copy", app="{app}"), TABLE.format(name="counts", app="{app}"))
    world.send(20)
    world.until_there("copy")
    wire.cut()
    world.send(20)
    time.sleep(OUTAGE_S)
    wire.mend()
    world.send(20)
    world.until_there("copy")


def test_a_wrong_password_is_said_at_once(plain, wire, tmp_path):
    log = BrokerHarness(plain, wire, tmp_path, password="wrong").log
    start = time.monotonic()
    with pytest.raises(LogDenied, match="Invalid username or password"):
        open_on(log, tmp_path / "state", InstanceConfig("app", changelogs=True))
    assert time.monotonic() - start < admins.TIMEOUT_S, "not only when time was up"


@pytest.mark.parametrize("queries", [1, 20])
def test_the_broker_sees_the_same_clients_however_many_queries(world, wire, queries):
    """Two consumers, a producer, an admin; each may have several connections, as clients of Kafka do."""
    wire.clients.clear()
    world.start(*(QUERY.format(name=f"q{n}", app="{app}") for n in range(queries)))
    world.send(10)
    world.until_there(f"q{queries - 1}")
    app = world.app
    seen = {client: n for client, n in wire.clients.items() if client.startswith(app)}  # others' may linger
    assert seen.keys() == {f"{app}-main", f"{app}-restore", f"{app}-admin", app}
    assert sum(seen.values()) <= 16, seen
