"""A fixed history of log operations that touches every kind of file, and what must be seen after each of them."""

from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.log.records import produce, read_all, reshape

A0, A1, B0, S0 = (TopicPartition(t, p) for t, p in (("A", 0), ("A", 1), ("B", 0), ("S", 0)))


def steps():
    """Operations on a log; each one is atomic."""
    yield lambda log: log.create_topic("A", 2)
    yield lambda log: produce(log, "p", (A0, [b"a1", b"a2"]), (A1, [b"a3"]), redo=b"r1")
    yield lambda log: log.create_topic("B", 1, {"retention.ms": "5"})
    for i in range(4):
        yield lambda log, i=i: produce(
            log,
            "p",
            (B0, [b"b%d" % i * 20] * 3),
            (A1, [b"c%d" % i]),
            positions={"g": {A0: Position(i, "m")}},
            redo=b"r" * 40,
        )
    yield lambda log: log.trim_redo("p", 3)
    yield lambda log: produce(log, "q", (A0, [b"q"]), positions={"h": {B0: Position(1)}})
    yield lambda log: log.drop_before(B0, 5)
    yield lambda log: produce(log, "p", (A0, [b"late"]), redo=b"r7")
    yield lambda log: produce(log, "p", (B0, [b"instead"]), drop={B0: log.end_offset(B0), A1: 1})
    yield lambda log: log.create_topic("S", 1)
    for i in range(3):
        yield lambda log, i=i: produce(log, "p", (S0, [b"s%d" % i * 300] * 3))
    yield lambda log: produce(log, "p", drop={A0: log.end_offset(A0)}, sources={A0: S0})
    yield lambda log: produce(log, "p", (A1, [b"behind"]), sources={A1: S0})
    yield lambda log: produce(log, "q", (A0, [b"then"]), (S0, [b"still"]))
    yield lambda log: log.delete_topic("S")
    yield lambda log: reshape(log, "A", 3, 50, keeps=True)
    yield lambda log: reshape(log, "B", 2, 40, keeps=False, records={1: [b"instead"]})
    yield lambda log: reshape(log, "B", 1, 60, keeps=True)
    yield lambda log: log.delete_topic("A")
    yield lambda log: log.trim_redo("p", 6)
    yield lambda log: produce(log, "p", (B0, [b"last"]), positions={"g": {B0: Position(9)}}, redo=b"end")


def observe(log):
    """All that a user of the log can see."""
    topics = log.topics()
    partitions = [TopicPartition(t, p) for t in sorted(topics) for p in range(topics[t].partitions)]
    return {
        "topics": {name: (info.partitions, dict(info.config)) for name, info in topics.items()},
        "records": {tp: read_all(log, tp) for tp in partitions},
        "bounds": {tp: (log.begin_offset(tp), log.end_offset(tp)) for tp in partitions},
        "groups": {g: log.committed(g) for g in ("g", "h")},
        "sequences": [log.last_sequence(i) for i in ("p", "q")],
        "redo": _redo(log),
    }


def _redo(log):
    for sequence in range(100):
        try:
            return list(log.redo_after("p", sequence))
        except LogCorrupt as e:
            if "trimmed" not in str(e):
                raise
    raise AssertionError("all redo is trimmed")


def expected():
    """What is seen before the first step and after each."""
    log = MemoryLog()
    seen = [observe(log)]
    for step in steps():
        step(log)
        seen.append(observe(log))
    return seen
