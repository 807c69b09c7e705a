"""A project as data: definitions that render to SQL, and what is known of each stream and table they make.

Only such combinations fit whose end does not depend on the order in which queries get on: see `Relation.exact` and `Relation.direct`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Column = tuple[str, str]  # name, SQL type
Kind = Literal["stream", "table"]
Priority = Literal["", "critical", "high", "normal", "batch"]
_FIELD = re.compile(r"\{([\w.]+)\}")
FOREVER = "100 DAYS"  # a grace that no record outlives
SPREAD_MAX = 3
UNDOABLE = ("COUNT", "SUM", "AVG")  # aggregates over tables


class Unfit(Exception):
    """The definitions do not fit together, or their end would depend on chance."""


@dataclass(frozen=True, slots=True)
class Item:
    """An expression of the select list, or a condition: columns stand in braces, of joined sources with L. or R. before them."""

    text: str
    type: str = "BOOLEAN"
    name: str = ""

    @property
    def column(self) -> Column:
        return self.name, self.type

    def uses(self) -> list[str]:
        return _FIELD.findall(self.text)

    def sql(self) -> str:
        plain = _FIELD.sub(r"\1", self.text)
        return f"{plain} AS {self.name}" if self.name else plain


FLAT_STATE = frozenset({"COUNT", "SUM", "MIN", "MAX"})  # aggregates whose state is no nested value


def has_flat_state(item: Item) -> bool:
    return item.text.partition("(")[0] in FLAT_STATE


# Of more values COLLECT_LIST would keep those that came first, which is another thousand in each run.
NO_LIMIT = "SET 'ksql.functions.collect_list.limit' = '1000000';"


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table.

    exact: the records of each partition come in one order, that of their times. direct: it is a topic of the outside, so that all its
    records are known to who reads it. static: it is there before anything else, and stays as it is. spread: how many streams were joined
    to make it, for the records of joins of joins grow without end. alias: its topic is that of another one. partitions: of its topic.
    flat: written in a format without nested values; an aggregate over it must not have a nested state.
    """

    name: str
    kind: Kind
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    windowed: bool = False
    exact: bool = False
    direct: bool = False
    static: bool = False
    spread: int = 1
    alias: bool = False
    topic: str = ""
    partitions: int = 1
    flat: bool = False

    @property
    def types(self) -> dict[str, str]:
        return {**dict.fromkeys(self.keys, "STRING"), **dict(self.columns)}

    def check(self, items: Iterable[Item], prefix: str = "") -> None:
        """Unfit if an item uses what is not there."""
        for item in items:
            for name in item.uses():
                head, _, column = name.rpartition(".")
                if head == prefix and column not in self.types:
                    raise Unfit(f"{self.name} has no {column}")
                if head == prefix and column in self.keys and item.name and item.text == f"{{{name}}}":
                    raise Unfit("the key is selected as it is")


@dataclass(frozen=True, slots=True)
class Source:
    """A stream or table over a topic that others write."""

    name: str
    kind: Kind
    columns: tuple[Column, ...]
    format: Literal["JSON", "DELIMITED"] = "JSON"
    static: bool = False
    reads = ()
    is_query = False

    @property
    def topic(self) -> str:
        return f"in_{self.name.lower()}"

    def relation(self, known: Mapping[str, Relation], partitions: int) -> Relation:
        del known, partitions
        return Relation(
            self.name,
            self.kind,
            ("K",),
            self.columns,
            exact=True,
            direct=True,
            static=self.static,
            flat=self.format == "DELIMITED",
        )

    def sql(self, known: Mapping[str, Relation]) -> str:
        return self.declared(known[self.name].partitions)

    def declared(self, partitions: int = 0) -> str:
        """0: over a topic that is there."""
        return _declared(self.name, self.kind, self.columns, self.topic, self.format, partitions)


@dataclass(frozen=True, slots=True)
class Alias:
    """A stream declared over the topic of a result."""

    name: str
    of: str
    is_query = False

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.of,)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> Relation:
        del partitions
        of = known[self.of]
        if of.direct or of.alias or of.kind != "stream" or len(of.keys) > 1:
            raise Unfit("an alias is of a stream that a query makes")
        return replace(of, name=self.name, alias=True)

    def sql(self, known: Mapping[str, Relation]) -> str:
        return _declared(self.name, "stream", known[self.of].columns, known[self.of].topic, "JSON")


@dataclass(frozen=True, slots=True)
class Select:
    """Filter and projection of a stream or table; a stream may get another key. No items: all columns."""

    name: str
    source: str
    items: tuple[Item, ...] = ()
    where: Item | None = None
    by: Item | None = None
    priority: Priority = ""
    topic: str = ""
    shards: int = 0
    is_query = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> Relation:
        of = known[self.source]
        of.check([*self.items, *_given(self.where, self.by)])
        if self.by is not None and (of.kind == "table" or not self.items or len(of.keys) > 1):
            raise Unfit("no other key for this")
        if any("EXPLODE" in i.text for i in self.items) and (of.kind == "table" or of.windowed):
            raise Unfit("rows of a table stay one")
        if self.by is not None and self.by.text in [i.text for i in self.items]:
            raise Unfit("the key is selected twice")
        keys = of.keys if self.by is None else ("K",)
        columns = _columns(self.items) or of.columns
        exact = of.exact and (self.by is None or partitions == 1)
        return Relation(self.name, of.kind, keys, columns, of.windowed, exact, spread=of.spread)

    def sql(self, known: Mapping[str, Relation]) -> str:
        of = known[self.source]
        if self.by is not None:
            listed = [f"{self.by.sql()} AS K", *(i.sql() for i in self.items)]
        else:
            listed = [*of.keys, *(i.sql() for i in self.items)] if self.items else ["*"]
        tail = f" PARTITION BY {self.by.sql()}" if self.by is not None else ""
        return f"{_head(self, of.kind)} SELECT {', '.join(listed)} FROM {self.source}{_where(self.where)}{tail} EMIT CHANGES;"


@dataclass(frozen=True, slots=True)
class Window:
    """grace: None for that of 24 hours."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_s: int
    advance_s: int = 0
    grace_s: int | None = None

    def sql(self) -> str:
        size = f"{self.size_s} SECONDS" if self.kind == "SESSION" else f"SIZE {self.size_s} SECONDS"
        advance = f", ADVANCE BY {self.advance_s} SECONDS" if self.kind == "HOPPING" else ""
        grace = "" if self.grace_s is None else f", GRACE PERIOD {self.grace_s} SECONDS"
        return f" WINDOW {self.kind} ({size}{advance}{grace})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """GROUP BY one or two columns of a stream or table."""

    name: str
    source: str
    group: tuple[str, ...]
    items: tuple[Item, ...]
    window: Window | None = None
    where: Item | None = None
    having: Item | None = None
    final: bool = False
    priority: Priority = ""
    topic: str = ""
    shards: int = 0
    is_query = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> Relation:
        of = known[self.source]
        of.check([*self.items, *_given(self.where), *(Item(f"{{{g}}}") for g in self.group)])
        if of.flat and not all(map(has_flat_state, self.items)):
            raise Unfit("its state is nested")
        if any(of.types[g] != "STRING" for g in self.group) or of.windowed:
            raise Unfit("no key of that")
        if of.kind == "table":
            if self.window or self.final or any(not i.text.startswith(UNDOABLE) for i in self.items):
                raise Unfit("not over a table")
            if self.group == of.keys or set(self.group) & set(of.keys):
                raise Unfit("a row of a table is alone in its key")
        timely = of.exact and (of.direct or self.group == of.keys or partitions == 1)
        if any("OFFSET" in i.text for i in self.items) and not timely:
            raise Unfit("which is the last would depend on chance")
        if self.final and (self.window is None or not timely or self.window.grace_s is None):
            raise Unfit("FINAL needs a window, and rows in order")
        if self.window is not None and self.window.grace_s is not None and not timely:
            raise Unfit("what is late would depend on chance")
        keys = ("K", "K2")[: len(self.group)]
        columns = _columns(self.items)
        return Relation(self.name, "table", keys, columns, self.window is not None)

    def sql(self, known: Mapping[str, Relation]) -> str:
        keys = ("K", "K2")[: len(self.group)]
        listed = [*(f"{g} AS {k}" for g, k in zip(self.group, keys, strict=True)), *(i.sql() for i in self.items)]
        tail = self.window.sql() if self.window is not None else ""
        tail += f"{_where(self.where)} GROUP BY {', '.join(self.group)}"
        having = [self.having.sql()] if self.having is not None else []
        if known[self.source].kind == "table":  # else a group that is empty stays if it was ever seen to have a row
            having.append("COUNT(*) > 0")
        tail += f" HAVING {' AND '.join(having)}" if having else ""
        key_format = ", KEY_FORMAT='JSON'" if len(keys) > 1 else ""
        head = _head(self, "table", key_format)
        return (
            f"{head} SELECT {', '.join(listed)} FROM {self.source}{tail} EMIT {'FINAL' if self.final else 'CHANGES'};"
        )


@dataclass(frozen=True, slots=True)
class Join:
    """Two sources by key, or a table with another by one of its columns (`foreign`). within_s, grace_s: of two streams."""

    name: str
    left: str
    right: str
    kind: Literal["INNER", "LEFT", "FULL OUTER"]
    items: tuple[Item, ...]
    within_s: int = 0
    grace_s: int | None = None
    foreign: str = ""
    where: Item | None = None
    priority: Priority = ""
    topic: str = ""
    shards: int = 0
    is_query = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.left, self.right)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> Relation:
        del partitions
        left, right = known[self.left], known[self.right]
        if left.partitions != right.partitions:
            raise Unfit("different numbers of partitions")
        if self.left == self.right or left.windowed or right.windowed or len(left.keys) + len(right.keys) > 2:
            raise Unfit("not to be joined")
        for side, prefix in ((left, "L"), (right, "R")):
            side.check([*self.items, *_given(self.where)], prefix)
        columns = _columns(self.items)
        if (left.kind, right.kind) == ("table", "table"):
            self._check_tables(left)
            return Relation(self.name, "table", ("K",), columns)
        if self.foreign or left.kind == "table":
            raise Unfit("not to be joined")
        both = left.direct and right.direct
        if right.kind == "table":
            if self.kind == "FULL OUTER" or not (both or right.static):
                raise Unfit("which row is met would depend on chance")
            return Relation(self.name, "stream", ("K",), columns, exact=left.exact, spread=left.spread)
        if not both and (self.kind != "INNER" or self.grace_s is not None):
            raise Unfit("what is late would depend on chance")
        spread = left.spread + right.spread
        if spread > SPREAD_MAX:
            raise Unfit("too many records")
        return Relation(self.name, "stream", ("K",), columns, exact=both and self.kind == "INNER", spread=spread)

    def _check_tables(self, left: Relation) -> None:
        if self.foreign and (left.types.get(self.foreign) != "STRING" or self.kind == "FULL OUTER"):
            raise Unfit("no foreign key")

    def sql(self, known: Mapping[str, Relation]) -> str:
        left, right = known[self.left], known[self.right]
        streams = left.kind == right.kind == "stream"
        grace = FOREVER if self.grace_s is None else f"{self.grace_s} SECONDS"
        within = f" WITHIN {self.within_s} SECONDS GRACE PERIOD {grace}" if streams else ""
        key = "ROWKEY" if self.kind == "FULL OUTER" else "L.K"
        listed = [f"{key} AS K", *(i.sql() for i in self.items)]
        on = f"L.{self.foreign or 'K'} = R.K"
        kind = "stream" if left.kind == "stream" else "table"
        joined = f"{self.left} L {self.kind} JOIN {self.right} R{within} ON {on}"
        return f"{_head(self, kind)} SELECT {', '.join(listed)} FROM {joined}{_where(self.where)} EMIT CHANGES;"


@dataclass(frozen=True, slots=True)
class InsertInto:
    """One more writer of a stream. items: its columns in order."""

    name: str  # a label; the statement has none
    target: str
    source: str
    items: tuple[Item, ...]
    where: Item | None = None
    priority: Priority = ""
    is_query = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source, self.target)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> None:
        del partitions
        of, target = known[self.source], known[self.target]
        of.check([*self.items, *_given(self.where)])
        if (
            of.kind == "table"
            or target.kind == "table"
            or target.direct
            or target.alias
            or len(of.keys) + len(target.keys) > 2
        ):
            raise Unfit("not to be inserted")
        if _columns(self.items) != target.columns:
            raise Unfit(f"{self.target} has other columns")

    def sql(self, known: Mapping[str, Relation]) -> str:
        del known
        listed = ", ".join(["K", *(i.sql() for i in self.items)])
        options = f" WITH (PRIORITY='{self.priority}')" if self.priority else ""
        return (
            f"INSERT INTO {self.target}{options} SELECT {listed} FROM {self.source}{_where(self.where)} EMIT CHANGES;"
        )


@dataclass(frozen=True, slots=True)
class InsertRow:
    """INSERT VALUES into a stream that a query makes."""

    name: str
    target: str
    values: tuple[tuple[str, str], ...]  # column, literal
    rowtime_ms: int
    is_query = False

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target,)

    def relation(self, known: Mapping[str, Relation], partitions: int) -> None:
        del partitions
        target = known[self.target]
        if (
            target.direct
            or target.alias
            or target.kind == "table"
            or any(c not in target.types for c, _ in self.values)
        ):
            raise Unfit("not to be inserted")

    def sql(self, known: Mapping[str, Relation]) -> str:
        del known
        names = ", ".join(["ROWTIME", *(n for n, _ in self.values)])
        return (
            f"INSERT INTO {self.target} ({names}) VALUES ({self.rowtime_ms}, {', '.join(v for _, v in self.values)});"
        )


Definition = Source | Alias | Select | Aggregate | Join | InsertInto | InsertRow
Query = Select | Aggregate | Join | InsertInto
QUERIES = (Select, Aggregate, Join, InsertInto)
Inserting = InsertInto | InsertRow


@dataclass(frozen=True, slots=True)
class Project:
    """Definitions in an order in which each finds what it reads. partitions: of the topics of sources; results have as many as what they
    are made of, or their `shards`.
    """

    definitions: tuple[Definition, ...]
    partitions: int = 1

    def relations(self) -> dict[str, Relation]:
        """Unfit if something does not fit."""
        shared = {d.target for d in self.definitions if isinstance(d, Inserting)}
        known: dict[str, Relation] = {}
        for d in self.definitions:
            if any(name not in known for name in d.reads) or d.name in known:
                raise Unfit(f"{d.name} does not find what it reads, or is there already")
            below = known[d.reads[0]].partitions if d.reads else self.partitions
            made = d.relation(known, below)
            if made is not None:
                topic = getattr(d, "topic", "") or made.topic or d.name
                n = getattr(d, "shards", 0) or below
                exact = made.exact and d.name not in shared and (n == below or below == 1)
                known[d.name] = replace(made, topic=topic, exact=exact, partitions=n)
        own = [r.topic for r in known.values() if not r.alias]
        if len(set(own)) < len(own):
            raise Unfit("two write to one topic")
        self._check_circles()
        return known

    def _check_circles(self) -> None:
        """A writer may come after readers of its target: what it reads must not come from there."""
        reads: dict[str, set[str]] = {}
        for d in self.definitions:
            if isinstance(d, InsertInto):
                reads.setdefault(d.target, set()).add(d.source)
            elif not isinstance(d, InsertRow):
                reads.setdefault(d.name, set()).update(d.reads)
        for name in reads:
            seen, todo = set(), list(reads[name])
            while todo:
                one = todo.pop()
                if one == name:
                    raise Unfit(f"{name} is made of itself")
                if one not in seen:
                    seen.add(one)
                    todo += reads.get(one, ())

    def sql(self) -> str:
        known = self.relations()
        return "\n".join([NO_LIMIT, *(d.sql(known) for d in self.definitions)]) + "\n"

    def get(self, name: str) -> Definition | None:
        return next((d for d in self.definitions if d.name == name), None)

    @property
    def sources(self) -> list[Source]:
        return [d for d in self.definitions if isinstance(d, Source)]

    @property
    def queries(self) -> list[Query]:
        return [d for d in self.definitions if isinstance(d, QUERIES)]

    @property
    def results(self) -> list[str]:
        """Names of what queries make."""
        return [d.name for d in self.definitions if isinstance(d, Select | Aggregate | Join)]

    def readers(self, name: str) -> list[Definition]:
        return [d for d in self.definitions if name in d.reads]

    def put(self, old: str, new: Definition) -> Project:
        """With another definition in the place of one."""
        return replace(self, definitions=tuple(new if d.name == old else d for d in self.definitions))

    def add(self, *new: Definition) -> Project:
        return replace(self, definitions=(*self.definitions, *new))

    def without(self, names: Sequence[str]) -> Project:
        """Without these and all that reads them."""
        gone = set(names)
        while more := {d.name for d in self.definitions if d.name not in gone and gone & set(d.reads)}:
            gone |= more
        return replace(self, definitions=tuple(d for d in self.definitions if d.name not in gone))


def _given(*items: Item | None) -> list[Item]:
    return [i for i in items if i is not None]


def _columns(items: Sequence[Item]) -> tuple[Column, ...]:
    columns = tuple(i.column for i in items)
    if len(dict(columns)) < len(columns):
        raise Unfit("two columns of one name")
    return columns


def _where(item: Item | None) -> str:
    return "" if item is None else f" WHERE {item.sql()}"


def _head(query: Select | Aggregate | Join, kind: Kind, more: str = "") -> str:
    priority = f", PRIORITY='{query.priority}'" if query.priority else ""
    more += f", KAFKA_TOPIC='{query.topic}'" if query.topic else ""
    more += f", PARTITIONS={query.shards}" if query.shards else ""
    return f"CREATE {kind.upper()} {query.name} WITH (VALUE_FORMAT='JSON'{more}{priority}) AS"


def _declared(
    name: str, kind: Kind, columns: Sequence[Column], topic: str, value_format: str, partitions: int = 0
) -> str:
    key = "K STRING PRIMARY KEY" if kind == "table" else "K STRING KEY"
    listed = ", ".join([key, *(f"{n} {t}" for n, t in columns)])
    more = f", PARTITIONS={partitions}" if partitions else ""
    return f"CREATE {kind.upper()} {name} ({listed}) WITH (KAFKA_TOPIC='{topic}', KEY_FORMAT='KAFKA', VALUE_FORMAT='{value_format}'{more});"
