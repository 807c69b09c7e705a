"""Texts that go forward: `python -m tests.change --forward --seeds 300 [--kills]`.

Queries get new texts under continuous input, with nothing rebuilt; the engine dies now and then. At the end each result is compared with
what the *recorded* offsets say: below them the old text, above them the new one. The reference never exchanges a text:

- a query without state is run once for each of its texts, in a fresh engine, over the records between the offsets of that text;
- a query with state is run as one text that tells by partition and offset of a record which of its texts holds for it;
- a reader is run over the records that are in the topic it reads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.plan.deployed import Forward
from flowql.compiler.plan.topology import Plan
from flowql.deploy.request import DeployRequest
from flowql.errors import CommandError
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.change.engine import Engine, Fresh, compiled
from tests.change.feed import Feed, append
from tests.change.generate import COLUMNS
from tests.change.machine import Killed
from tests.change.oracle import difference, results_of
from tests.change.places import State, of_relation, of_topic, records, state_of
from tests.change.project import Source

DEATHS_MAX, MOMENTS_MAX = 4, 120
STREAMS = (Source("S0", "stream", COLUMNS[:4]), Source("S1", "stream", COLUMNS[:4]))
TABLE = Source("T0", "table", COLUMNS[:4])
SOURCES = (*STREAMS, TABLE)
Offsets = Mapping[tuple[str, int], int]  # of a partition of a topic: where a text begins


@dataclass(frozen=True, slots=True)
class Text:
    """What may change in a query. where: a condition on its (left) source, with {0} for the name of the source and a dot. x, y: what is
    selected. z: whether there is another column.
    """

    where: str = "TRUE"
    x: str = "{0}A"
    y: str = "{0}S"
    z: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What does not change. stateful: it keeps a state over its sources. may: parts of the text that may change without a rebuild. both:
    a result is made when the later of two records comes, and goes through the old text if both are below its end.
    """

    sql: Callable[[str, Text], str]
    may: tuple[str, ...]
    reads: tuple[str, ...] = ("in_s0",)
    stateful: bool = True
    table: bool = False
    both: bool = False


def _selected(t: Text, left: str = "") -> str:
    more = f", {left}B + 1 AS Z" if t.z else ""
    return f"{t.x.format(left)} AS X, {t.y.format(left)} AS Y{more}"


def _grouped(by: str, window: str = "", end: str = "") -> Callable[[str, Text], str]:
    return lambda name, t: (
        f"CREATE TABLE {name} AS SELECT {by}, COUNT(*) AS N, SUM(A) AS M, MAX(B) AS O FROM S0 {window} "
        f"WHERE {t.where.format('')} GROUP BY {by}{end};"
    )


def _with_table(kind: str, on: str) -> Callable[[str, Text], str]:
    return lambda name, t: (
        f"CREATE STREAM {name} AS SELECT L.{on}, {_selected(t, 'L.')}, R.B AS RB FROM S0 L {kind} JOIN T0 R ON L.{on} = R.K "
        f"WHERE {t.where.format('L.')};"
    )


SHAPES: dict[str, Shape] = {
    "select": Shape(
        lambda name, t: f"CREATE STREAM {name} AS SELECT K, {_selected(t)} FROM S0 WHERE {t.where.format('')};",
        ("where", "x", "y", "z"),
        stateful=False,
    ),
    "rekeyed": Shape(
        lambda name, t: f"CREATE STREAM {name} AS SELECT G AS H, {_selected(t)} FROM S0 WHERE {t.where.format('')} PARTITION BY G;",
        ("where", "x", "y", "z"),
        stateful=False,
    ),
    "of a table": Shape(
        lambda name, t: f"CREATE TABLE {name} AS SELECT K, {_selected(replace(t, z=False))} FROM T0;",
        ("x", "y"),
        ("in_t0",),
        stateful=False,
        table=True,
    ),
    "counts": Shape(_grouped("K"), ("where",)),
    "moved counts": Shape(_grouped("G"), ("where",)),
    "windows": Shape(_grouped("G", "WINDOW TUMBLING (SIZE 60 SECONDS)"), ("where",)),
    "final": Shape(_grouped("K", "WINDOW TUMBLING (SIZE 60 SECONDS, GRACE PERIOD 10 SECONDS)", " EMIT FINAL"), ("where",)),
    "sessions": Shape(_grouped("G", "WINDOW SESSION (30 SECONDS)"), ("where",)),
    "enriched": Shape(_with_table("", "K"), ("where", "x", "y", "z"), ("in_s0", "in_t0")),
    "moved, enriched": Shape(_with_table("LEFT", "G"), ("where", "x", "y", "z"), ("in_s0", "in_t0")),
    "matched": Shape(
        lambda name, t: (
            f"CREATE STREAM {name} AS SELECT L.K, {t.x.format('L.')} AS X, L.A, L.B, L.S, L.G, R.B AS RB FROM S0 L JOIN S1 R WITHIN 30 SECONDS GRACE PERIOD 60 SECONDS "
            f"ON L.K = R.K WHERE {t.where.format('L.')};"
        ),
        ("where", "x"),
        ("in_s0", "in_s1"),
        both=True,
    ),
}  # fmt: skip
CONDITIONS = (
    "TRUE",
    "{0}A > 3",
    "{0}B < 6",
    "{0}A <> {0}B",
    "{0}G <> 'g1'",
    "{0}A + {0}B > 8",
    "{0}G > 'g1' OR {0}A = 2",
)
NUMBERS = ("{0}A", "{0}A * 3", "{0}A + {0}B", "COALESCE({0}A, 7)")
TEXTS = ("{0}S", "UCASE({0}G)", "CONCAT({0}S, '-1')", "CASE WHEN {0}G > 'g1' THEN 'x' ELSE {0}S END")


@dataclass(slots=True)
class Query:
    """One query of a story, with its texts by the number of the deployment that brought them."""

    name: str
    shape: Shape
    text: Text
    texts: dict[int, Text] = field(default_factory=dict)

    def sql(self, text: Text, *, says_so: bool = False) -> str:
        said = f"{self.name} WITH (ON_CHANGE='forward') AS" if says_so else f"{self.name} AS"
        return self.shape.sql(self.name, text).replace(f"{self.name} AS", said, 1)


@dataclass(frozen=True, slots=True)
class ForwardOptions:
    """kills: the engine dies at random moments. disk: the log is the embedded one."""

    kills: bool = False
    disk: bool = False
    turns: int = 6
    records: int = 40


class ForwardStory:
    """trace: what happened, one line each."""

    def __init__(self, seed: int, options: ForwardOptions) -> None:
        self.options = options
        self.rng = random.Random(f"forward {seed}")
        self._chance = random.Random(f"deaths {seed}")
        self.says_so = self.rng.random() < 0.3  # ON_CHANGE of each query; else --forward
        self.engine = Engine(random.Random(f"engine {seed}"), on_disk=options.disk)
        self.feed = Feed(self.rng, self.engine.log, records=options.records)
        shapes = self.rng.sample(sorted(SHAPES), 3)
        if not any(s in ("select", "rekeyed") for s in shapes):
            shapes.append("select")
        self.queries = [Query(f"Q{n}", SHAPES[s], self._text(SHAPES[s], Text())) for n, s in enumerate(shapes)]
        self.read = next(q for q, s in zip(self.queries, shapes, strict=True) if s in ("select", "rekeyed"))
        self.shapes, self.trace = shapes, list[str]()

    @property
    def files(self) -> str:
        return self._sql({q.name: q.text for q in self.queries})

    def run(self) -> list[str]:
        """What is wrong, or nothing."""
        partitions = self.rng.choice((1, 2, 3))
        for source in SOURCES:
            self.engine.log.create_topic(source.topic, partitions)
        self.trace.append(f"{', '.join(self.shapes)}; {partitions} partitions")
        self.feed.round(SOURCES)
        self._deploy({q.name: q.text for q in self.queries}, forward=False)
        self.engine.life.moments = 0
        for _ in range(self.options.turns):
            for _ in range(self.rng.randint(1, 4)):
                self.feed.round(SOURCES, self.rng.choice((6, None)))
                rounds = self.rng.randint(0, 8)
                self._mortal(lambda rounds=rounds: self.engine.turn(rounds))
            self._edit()
            if self.rng.random() < 0.1:
                assert self._is_refused(), "a column of another type"
        self.feed.round(SOURCES)
        while not self._mortal(self.engine.rest):
            pass
        return [line for q in self.queries for line in self._wrong(q)] + self._wrong_reader()

    # -- what happens

    def _sql(self, texts: Mapping[str, Text]) -> str:
        declared = "\n".join(s.declared() for s in SOURCES)
        queries = "\n".join(q.sql(texts[q.name], says_so=self.says_so) for q in self.queries)
        return f"{declared}\n{queries}\n{self._reader()}"

    def _reader(self) -> str:
        return f"CREATE TABLE READER AS SELECT Y, COUNT(*) AS N, SUM(X) AS M FROM {self.read.name} GROUP BY Y;\n"

    def _text(self, shape: Shape, text: Text) -> Text:
        rng = self.rng
        part = rng.choice(shape.may)
        if part == "z":
            return replace(text, z=not text.z)
        return replace(text, **{part: rng.choice({"x": NUMBERS, "y": TEXTS}.get(part, CONDITIONS))})

    def _edit(self) -> None:
        texts = {q.name: q.text for q in self.queries}
        for query in self.rng.sample(self.queries, self.rng.choice((1, 1, 2))):
            texts[query.name] = self._text(query.shape, query.text)
        self._deploy(texts, forward=True)

    def _deploy(self, texts: dict[str, Text], *, forward: bool) -> None:
        """Until it is done, whoever dies."""
        asked = DeployRequest(forward=forward and not self.says_so)
        before = self.engine.record
        while True:
            number = self.engine.record.id + 1
            wanted = self._compiled(texts)
            for query in self.queries:
                query.texts[number] = texts[query.name]
            if self._mortal(lambda plan=wanted: self.engine.deploy(plan, asked, served=True)):
                break
            if self.engine.record.id > before.id:
                break
        for query in self.queries:
            query.text = texts[query.name]
        done = [f.query for f in self.engine.record.forwards if f.deployment > before.id]
        self.trace.append(f"deployment {self.engine.record.id}: {', '.join(done) or 'nothing'} forward")
        assert not forward or self.engine.record.wanted is None, "nothing is rebuilt"

    def _compiled(self, texts: Mapping[str, Text]) -> Plan:
        running = self.engine.deployed
        partitions = {name: info.partitions for name, info in self.engine.log.topics().items()}
        found = compiled(self._sql(texts), partitions, running if running.queries else None)
        assert isinstance(found, Plan), found
        return found

    def _is_refused(self) -> bool:
        """A column of another type in one of the results."""
        texts = {q.name: q.text for q in self.queries}
        wrong = replace(self.read.text, x="CAST({0}A AS DOUBLE)")
        before = self.engine.record
        try:
            self.engine.service.deploy(self._compiled({**texts, self.read.name: wrong}), DeployRequest(forward=True))
        except CommandError as error:
            return error.code == "FQ5220" and self.engine.record is before
        return False

    def _mortal(self, act: Callable[[], None]) -> bool:
        """Whether it was done; else the engine died on the way and was opened again."""
        life = self.engine.life
        if self.options.kills and self.engine.deaths < DEATHS_MAX:
            life.at = life.moments + self._chance.randint(1, MOMENTS_MAX)
        try:
            act()
        except Killed:
            self._boot()
            return False
        finally:
            life.at = None
        return True

    def _boot(self) -> None:
        while True:
            self.engine.kill()
            self.trace.append(f"killed at moment {self.engine.life.moments}")
            try:
                self.engine.reopen()
            except Killed:
                continue
            self.feed.log = self.engine.log
            return

    # -- what should be

    def _begun(self, query: Query) -> list[Forward]:
        """The texts that went forward, in their order."""
        ids = {q.id: q.sink for q in self.engine.plan.queries}
        return [f for f in self.engine.record.forwards if ids[f.query] == query.name]

    def _wrong(self, query: Query) -> list[str]:
        begun = self._begun(query)
        texts = [query.texts[1], *(query.texts[f.deployment] for f in begun)]
        if texts[-1] != query.text and query.sql(texts[-1]) != query.sql(query.text):
            return [f"{query.name}: its last text is not on record"]
        wrong = self._with_state(query, texts, begun) if query.shape.stateful else self._stateless(query, texts, begun)
        if wrong:
            wrong = [f"{query.name}, {len(texts)} texts, begun at {[f.reads for f in begun]}", *wrong]
        return wrong

    def _stateless(self, query: Query, texts: Sequence[Text], begun: Sequence[Forward]) -> list[str]:
        """Each text over its records; where its results begin in the topic is on record, too."""
        source = results_of(self.engine.plan)[query.name]
        found = [
            row
            for tp in _partitions(self.engine.log, source.topic)
            for row in records(self.engine.log.reader(tp, EARLIEST))
        ]
        edges = [{}, *(_offsets(f.reads) for f in begun), {}]
        ends = [{}, *(_offsets(f.results) for f in begun), {}]
        wrong, made = list[str](), list[Any]()
        for n, text in enumerate(texts):
            log = _cut(self.engine.log, query.shape.reads, edges[n], edges[n + 1])
            fresh = _ran(log, "\n".join([*(s.declared() for s in SOURCES), query.sql(text)]))
            rows = [row for tp in _partitions(log, source.topic) for row in records(log.reader(tp, EARLIEST))]
            fresh.close()
            made += rows
            if not query.shape.table:
                here = [r for r in found if _within(source.topic, r[0], r[1], ends[n], ends[n + 1])]
                wrong += difference(f"text {n + 1} of {query.name}", state_of(source, rows), state_of(source, here))
        if query.shape.table:
            wrong += difference(f"topic of {query.name}", state_of(source, made), state_of(source, found))
        return wrong

    def _with_state(self, query: Query, texts: Sequence[Text], begun: Sequence[Forward]) -> list[str]:
        """One text that tells by the place of a record which text it goes through."""
        log = _cut(self.engine.log, query.shape.reads, {}, {})
        edges = [_counted(self.engine.log, f) for f in begun]
        below = [_below(edge, query.shape) for edge in edges]
        x, y = (_by_place([getattr(t, part) for t in texts], below) for part in ("x", "y"))
        merged = Text(_chosen([t.where for t in texts], below), x, y)
        fresh = _ran(log, "\n".join([*(s.declared() for s in SOURCES), query.sql(merged)]))
        source, engine = results_of(self.engine.plan)[query.name], self.engine
        wrong = difference(
            f"topic of {query.name}",
            _plain(of_topic(fresh.log, source), query),
            _plain(of_topic(engine.log, source), query),
        )
        if source.kind == "table":
            wrong += difference(
                f"rows of {query.name}", of_relation(fresh.front, query.name), of_relation(engine.front, query.name)
            )
        fresh.close()
        return wrong

    def _wrong_reader(self) -> list[str]:
        """What it should be of the records that there are."""
        source = results_of(self.engine.plan)[self.read.name]
        log = _cut(self.engine.log, [source.topic], {}, {})
        key = source.schema.key[0].name
        declared = (
            f"CREATE STREAM {source.name} ({key} STRING KEY, X BIGINT, Y STRING) "
            f"WITH (KAFKA_TOPIC='{source.topic}', VALUE_FORMAT='JSON', KEY_FORMAT='KAFKA');\n"
        )
        fresh = _ran(log, declared + self._reader())
        expected, seen = of_relation(fresh.front, "READER"), of_relation(self.engine.front, "READER")
        fresh.close()
        return difference("rows of READER", expected, seen)


def _plain(state: State, query: Query) -> State:
    """Without the column that only some texts have."""
    if "z" not in query.shape.may:
        return state
    found: State = Counter()
    for (p, key, value, time), count in state.items():
        kept = None if value is None else {k: v for k, v in orjson.loads(value).items() if k != "Z"}
        found[p, key, None if kept is None else orjson.dumps(kept), time] += count
    return found


def _offsets(found: Sequence[tuple[str, int, int]]) -> Offsets:
    return {(topic, p): at for topic, p, at in found}


def _within(topic: str, partition: int, offset: int, begin: Offsets, end: Offsets) -> bool:
    return begin.get((topic, partition), 0) <= offset < end.get((topic, partition), 1 << 62)


def _partitions(log: Log, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(log.admin().topics()[topic].partitions)]


def _cut(log: Log, topics: Sequence[str], begin: Offsets, end: Offsets) -> MemoryLog:
    """A log with the records of topics between these offsets."""
    cut, batches = MemoryLog(), {}
    for topic in {*topics, *(s.topic for s in SOURCES)}:
        cut.create_topic(topic, log.admin().topics()[topic].partitions)
    for tp in (tp for topic in topics for tp in _partitions(log, topic)):
        rows = [r for r in records(log.reader(tp, EARLIEST)) if _within(*tp, r[1], begin, end)]
        if rows:
            names = ("partition", "offset", "key", "value", "timestamp")
            found = [{**dict(zip(names, row, strict=True)), "headers": None} for row in rows]
            batches[tp] = pa.RecordBatch.from_pylist(
                [{f: r[f] for f in PRODUCE_SCHEMA.names} for r in found], PRODUCE_SCHEMA
            )
    append(cut, batches)
    return cut


def _counted(log: Log, forward: Forward) -> Offsets:
    """How many records are below the offsets: those are the offsets in a log that has nothing else."""
    return {
        (topic, p): sum(r[1] < at for r in records(log.reader(TopicPartition(topic, p), EARLIEST)))
        for topic, p, at in forward.reads
    }


def _below(edge: Offsets, shape: Shape) -> str:
    """The condition that a record goes through an earlier text."""
    prefixes = ("{0}", "R.") if shape.both else ("{0}",)
    found = []
    for prefix, topic in zip(prefixes, shape.reads, strict=False):
        at = [(p, n) for (t, p), n in sorted(edge.items()) if t == topic]
        found.append(" OR ".join(f"({prefix}ROWPARTITION = {p} AND {prefix}ROWOFFSET < {n})" for p, n in at))
    return f"({' AND '.join(f'({f})' for f in found)})"


def _chosen(conditions: Sequence[str], below: Sequence[str]) -> str:
    """The condition that each record is judged by where it lies."""
    found = conditions[-1]
    for condition, here in zip(reversed(conditions[:-1]), reversed(below), strict=True):
        found = f"(({here} AND ({condition})) OR (NOT {here} AND ({found})))"
    return found


def _by_place(exprs: Sequence[str], below: Sequence[str]) -> str:
    found = exprs[-1]
    for expr, here in zip(reversed(exprs[:-1]), reversed(below), strict=True):
        found = f"CASE WHEN {here} THEN {expr} ELSE {found} END"
    return found


def _ran(log: MemoryLog, sql: str) -> Fresh:
    """A fresh engine that has read all of a log."""
    plan = compiled(sql, {name: info.partitions for name, info in log.topics().items()}, None)
    assert isinstance(plan, Plan), f"{plan}\n{sql}"
    fresh = Fresh(log, seed=1)
    fresh.run(plan)
    return fresh
