"""Chains of steps at random: as one query they give what they give with a topic behind each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from flowql import Expression, Stream, StreamsBuilder, Table, col, fn, when
from tests.registries import forget_projects
from tests.runtime.app.streams_harness import Feed, StreamsHarness

SEEDS = 60
FEED: Feed = {
    "in": [(k % 4, {"N": n, "T": "x" * (n % 3)}, 1_000 * n) for n, k in enumerate([1, 2, 3, 1, 0, 2, 5, 1, 7])]
}
TABLES: Feed = {
    "rows": [(k, {"V": 10 * k, "F": k % 3}, 0) for k in range(12)],
    "more": [(k, {"W": 100 + k}, 0) for k in range(0, 12, 2)],
}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_projects()


@dataclass
class Chain:
    """A stream of numbers, its columns without the key, and a name for the next column."""

    stream: Stream
    key: str
    values: list[str]
    rng: random.Random
    made: int = 0

    def column(self) -> Expression:
        return col(self.rng.choice([self.key, *self.values]))

    def expression(self) -> Expression:
        a, b = self.column(), self.rng.choice([self.column(), 3])
        return self.rng.choice([a + b, a - b, when(a > 2, a).otherwise(b), fn.ABS(a), col("ROWTIME") / 1000 + a])

    def name(self) -> str:
        self.made += 1
        return f"c{self.made}"


def filtered(c: Chain) -> None:
    condition = c.rng.choice(
        [c.column() > 1, c.expression() % 2 == 0, c.column().is_not_null(), col("rowtime") > 2_000]
    )
    c.stream = c.stream.filter(condition)


def branched(c: Chain) -> None:
    c.stream = c.stream.branch(c.column() > 4, c.expression() > -5)[c.rng.randrange(2)]


def mapped(c: Chain) -> None:
    new = {c.name(): c.expression() for _ in range(c.rng.randint(1, 2))}
    kept = c.rng.sample(c.values, c.rng.randint(0, len(c.values)))
    c.stream, c.values = c.stream.map_values(*kept, **new), [*kept, *new]


def widened(c: Chain) -> None:
    new = {c.rng.choice([c.name(), *c.values]): c.expression()}
    c.stream, c.values = c.stream.with_columns(**new), list(dict.fromkeys([*c.values, *new]))


def rekeyed(c: Chain) -> None:
    if c.rng.random() < 0.5:
        new = c.rng.choice(c.values)
        c.stream = c.stream.select_key(new)
    else:
        new = c.name()
        c.stream = c.stream.select_key(**{new: c.expression()})
    c.values, c.key = [v for v in [*c.values, c.key] if v != new], new


def mapped_with_a_key(c: Chain) -> None:
    key, value = c.name(), c.name()
    c.stream = c.stream.map(key={key: c.expression()}, **{value: c.expression()})
    c.key, c.values = key, [value]


def called(c: Chain) -> None:
    """Names in dicts are as in SQL: in capitals."""
    first, name = c.values[0].upper(), c.name()
    c.stream = c.stream.map_values(lambda k, v: {name: (v[first] or 0) + (k or 0)}, value={name: int})
    c.values = [name]


def sieved(c: Chain) -> None:
    first = c.values[0].upper()
    c.stream = c.stream.filter(lambda v: v[first] is not None and v[first] % 3 != 1)


def exploded(c: Chain) -> None:
    name, first = c.name(), c.values[0].upper()
    if c.rng.random() < 0.5:
        c.stream = c.stream.flat_map_values(lambda v: [{name: v[first]}, {name: 7}], value={name: int})
    else:
        c.stream = c.stream.flat_map_values(**{name: fn.GENERATE_SERIES(c.expression().cast(int) % 3, 3)})
    c.values = [name]


def joined(c: Chain) -> None:
    streams = c.stream._graph
    more = Table(streams, StreamsBuilder.table(_builders[id(streams)], "MORE")._step)
    kept = c.rng.choice([more, more.map_values(w=col("w") + 1), more.filter(col("w") > 103)])
    on = None if c.rng.random() < 0.5 else c.rng.choice([c.key, *c.values])
    c.stream = (c.stream.left_join if c.rng.random() < 0.5 else c.stream.join)(kept, on=on, suffix=f"_{c.name()}")
    key = on or c.key
    c.values, c.key = [v for v in [*c.values, c.key] if v != key], key
    name = c.name()
    c.stream = c.stream.map_values(*c.values, **{name: c.column()})
    c.values.append(name)


_builders: dict[int, StreamsBuilder] = {}
STEPS: list[Callable[[Chain], None]] = [
    filtered, branched, mapped, widened, rekeyed, mapped_with_a_key, called, sieved, exploded, joined,
]  # fmt: skip


def build(seed: int, *, through: bool) -> tuple[StreamsBuilder, bool]:
    """The builder, and whether it ends in a table."""
    rng = random.Random(seed)
    s = StreamsBuilder("S")
    _builders[id(s._graph)] = s
    c = Chain(s.stream("IN_").map_values("n"), "k", ["n"], rng)
    for place in range(rng.randint(2, 7)):
        rng.choice(STEPS)(c)
        if through:
            c.stream = c.stream.through(f"STEP_{place}")
    if rng.random() < 0.6:
        c.stream.to("OUT")
        return s, False
    grouped = c.stream.group_by_key() if rng.random() < 0.5 else c.stream.group_by(g=c.expression())
    total = c.column()
    table = grouped.aggregate(many=fn.COUNT(), total=fn.SUM(total))
    if through:
        table = table.through("GROUPS")
    table = table.filter(col("many") > rng.randint(0, 1)).with_columns(mean=col("total") / col("many"))
    table.to("OUT")
    return s, True


def found(seed: int, *, through: bool) -> list[str]:
    builder, is_table = build(seed, through=through)
    world = StreamsHarness(builder)
    world.feed(TABLES)
    world.feed(FEED)
    rows = [(key, value) for key, value, _ in world.out("OUT")]
    letters = [q.id for q in world.instance.plan.queries if world.dead_letters(q.id)]
    assert not letters
    return sorted(map(repr, dict(rows).items() if is_table else rows))


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_chain_is_the_same_with_and_without_topics(seed: int) -> None:
    assert found(seed, through=False) == found(seed, through=True)
