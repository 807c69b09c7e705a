"""Projects at random: of every kind of query, each over what is there already."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.change.project import (
    Aggregate,
    Alias,
    Column,
    Definition,
    InsertInto,
    InsertRow,
    Item,
    Join,
    Project,
    Relation,
    Select,
    Source,
    Unfit,
    Window,
    has_flat_state,
)

# What records of JSON topics hold; a source declares some of it, and may come to declare more.
COLUMNS: tuple[Column, ...] = (
    ("A", "BIGINT"),
    ("B", "BIGINT"),
    ("S", "STRING"),
    ("G", "STRING"),
    ("R", "STRING"),
    ("C", "BIGINT"),
    ("T", "STRING"),
    ("L", "ARRAY<BIGINT>"),
)
TRIES = 60
TIMES_S = (5, 10, 30, 60, 300)


class Generator:
    """Makes definitions that fit what is there. Names are never used twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = 0
        self._rules: list[Callable[[dict[str, Relation]], Definition]] = [
            *[self.select] * 5,
            *[self.aggregate] * 7,
            *[self.join] * 7,
            *[self.insert_into] * 2,
            self.alias,
        ]

    def project(self, queries: int | None = None) -> Project:
        rng = self.rng
        project = Project((), rng.choice((1, 1, 2, 3)))
        kinds = rng.choice(
            (("stream", "stream"), ("stream", "table"), ("stream", "stream", "table"), ("stream", "table", "table"))
        )
        for n, kind in enumerate(kinds):
            project = project.add(self.source(f"{kind[0].upper()}{n}", kind))
        wanted = queries or rng.choice((3, 4, 5, 6, 6, 7, 8, 10, 12))
        while len(project.queries) < wanted:
            project = self.grow(project)
        return project

    def source(self, name: str, kind: str) -> Source:
        rng = self.rng
        columns = COLUMNS[: rng.randint(4, 6)]
        assert kind in ("stream", "table")
        written = "DELIMITED" if rng.random() < 0.15 else "JSON"
        if written == "JSON" and rng.random() < 0.3:
            columns = (*columns, COLUMNS[-1])
        return Source(
            name,
            "table" if kind == "table" else "stream",
            columns,
            written,
            static=kind == "table" and rng.random() < 0.4,
        )

    def grow(self, project: Project) -> Project:
        """With one more definition."""
        for _ in range(TRIES):
            try:
                grown = project.add(self.rng.choice(self._rules)(project.relations()))
                grown.relations()
            except Unfit:
                continue
            return grown
        raise AssertionError("nothing fits any more")

    def name(self, letter: str = "Q") -> str:
        self._names += 1
        return f"{letter}{self._names}"

    # -- queries

    def select(self, known: dict[str, Relation]) -> Select:
        of = self._near(known)
        where = self.condition(of) if self.rng.random() < 0.6 else None
        if self.rng.random() < 0.2:
            return Select(self.name(), of.name, (), where)
        by = None
        if of.kind == "stream" and len(of.keys) == 1 and not of.windowed and self.rng.random() < 0.35:
            by = Item(f"{{{self._column(of, 'STRING')}}}", "STRING")
        return Select(self.name(), of.name, self.items(of), where, by)

    def aggregate(self, known: dict[str, Relation]) -> Aggregate:
        rng = self.rng
        of = self._near(known, lambda r: not r.windowed)
        strings = [n for n, t in of.types.items() if t == "STRING"]
        group = tuple(rng.sample(strings, min(len(strings), rng.choice((1, 1, 1, 2)))))
        if of.kind == "stream" and rng.random() < 0.35:
            group = of.keys[:1]
        window = self.window() if of.kind == "stream" and rng.random() < 0.5 else None
        final = window is not None and window.grace_s is not None and rng.random() < 0.4
        where = self.condition(of) if rng.random() < 0.3 else None
        having = Item("COUNT(*) > 1") if rng.random() < 0.2 else None
        return Aggregate(self.name(), of.name, group, self.aggregates(of), window, where, having, final)

    def window(self) -> Window:
        rng = self.rng
        kind = rng.choice(("TUMBLING", "HOPPING", "SESSION"))
        size = rng.choice(TIMES_S)
        grace = rng.choice((None, None, 0, 10, 60))
        return Window(kind, size, max(1, size // rng.choice((1, 2, 3))) if kind == "HOPPING" else 0, grace)

    def join(self, known: dict[str, Relation]) -> Join:
        rng = self.rng
        left = self._near(known, lambda r: not r.windowed and len(r.keys) == 1)
        right = self._near(known, lambda r: not r.windowed and len(r.keys) == 1)
        items = [
            self._item(self.name(side), left if side == "L" else right, side + ".")
            for side in "LR"
            for _ in range(rng.randint(1, 2))
        ]
        kind = rng.choice(("INNER", "INNER", "LEFT", "FULL OUTER"))
        foreign, within, grace = "", 0, None
        if left.kind == right.kind == "table" and rng.random() < 0.5:
            foreign = self._column(left, "STRING")
        if left.kind == right.kind == "stream":
            within, grace = rng.choice(TIMES_S), rng.choice((None, None, 0, 30))
            if rng.random() < 0.5:
                kind, grace = "INNER", None
        where = self.condition(left, "L.") if kind == "INNER" and rng.random() < 0.2 else None
        return Join(self.name(), left.name, right.name, kind, tuple(items), within, grace, foreign, where)

    def insert_into(self, known: dict[str, Relation]) -> InsertInto:
        rng = self.rng
        target = self._pick([r for r in known.values() if r.kind == "stream" and not r.direct and len(r.keys) == 1])
        source = self._near(known, lambda r: r.kind == "stream" and len(r.keys) == 1)
        items = tuple(replace(self.expression(source, t), name=n) for n, t in target.columns)
        return InsertInto(
            self.name(), target.name, source.name, items, self.condition(source) if rng.random() < 0.4 else None
        )

    def alias(self, known: dict[str, Relation]) -> Alias:
        return Alias(self.name(), self._pick([r for r in known.values() if r.kind == "stream" and not r.direct]).name)

    def row(self, known: dict[str, Relation], now_ms: int) -> InsertRow:
        rng = self.rng
        target = self._pick([r for r in known.values() if r.kind == "stream" and not r.direct and len(r.keys) == 1])
        values = [("K", f"'k{rng.randrange(4)}'")]
        values += [
            (n, str(rng.randrange(9)) if t == "BIGINT" else f"'g{rng.randrange(3)}'")
            for n, t in target.columns
            if t in ("BIGINT", "STRING")
        ]
        return InsertRow(self.name(), target.name, tuple(values), now_ms)

    # -- parts of queries

    def items(self, of: Relation) -> tuple[Item, ...]:
        """A select list that keeps a text to group by, and something else."""
        columns = self.rng.sample(of.columns, min(len(of.columns), self.rng.randint(1, 4)))
        listed = [Item(f"{{{n}}}", t, n) for n, t in columns]
        made = [self._item(self.name("X"), of) for _ in range(self.rng.randint(0, 2))]
        if of.kind == "stream" and self.rng.random() < 0.5:
            made += [
                Item(f"EXPLODE({{{n}}})", "BIGINT", self.name("E")) for n, t in of.columns if t == "ARRAY<BIGINT>"
            ][:1]
        return tuple([*listed, *made])

    def _item(self, name: str, of: Relation, prefix: str = "") -> Item:
        return replace(self.expression(of, self.rng.choice(("BIGINT", "STRING")), prefix), name=name)

    def expression(self, of: Relation, sql_type: str, prefix: str = "") -> Item:
        rng = self.rng
        if sql_type == "BIGINT" and any(t == "BIGINT" for _, t in of.columns):
            one, other = (f"{{{prefix}{self._column(of, 'BIGINT')}}}" for _ in range(2))
            n = rng.randint(2, 9)
            return Item(rng.choice((one, f"{one} + {other}", f"{one} * {n}", f"COALESCE({one}, {n})")), "BIGINT")
        text = f"{{{prefix}{self._column(of, 'STRING')}}}"
        if sql_type == "BIGINT":
            return Item(rng.choice((f"CAST(LEN({text}) AS BIGINT)", f"CAST({rng.randint(1, 9)} AS BIGINT)")), "BIGINT")
        if sql_type == "STRING":
            made = (
                text,
                text,
                f"UCASE({text})",
                f"CONCAT({text}, '-{rng.randint(1, 9)}')",
                f"CASE WHEN {text} > 'g1' THEN 'x' ELSE {text} END",
            )
            return Item(rng.choice(made), "STRING")
        found = [n for n, t in of.columns if t == sql_type]
        if not found:
            raise Unfit(f"no {sql_type}")
        return Item(f"{{{prefix}{rng.choice(found)}}}", sql_type)

    def condition(self, of: Relation, prefix: str = "") -> Item:
        rng = self.rng
        numbers = [n for n, t in of.columns if t == "BIGINT"]
        if numbers and rng.random() < 0.7:
            one = f"{{{prefix}{rng.choice(numbers)}}}"
            return Item(
                rng.choice(
                    (f"{one} > {rng.randint(0, 6)}", f"{one} < {rng.randint(3, 9)}", f"{one} <> {rng.randint(0, 9)}")
                )
            )
        return Item(f"{{{prefix}{self._column(of, 'STRING')}}} <> '{rng.choice(('g1', 'k1', 'k2', 'x'))}'")

    def aggregates(self, of: Relation) -> tuple[Item, ...]:
        return tuple(replace(self.one_aggregate(of), name=self.name("N")) for _ in range(self.rng.randint(1, 3)))

    def one_aggregate(self, of: Relation) -> Item:
        rng = self.rng
        numbers = [n for n, t in of.columns if t == "BIGINT"]
        found = [Item("COUNT(*)", "BIGINT")]
        if numbers:
            one = f"{{{rng.choice(numbers)}}}"
            found += [Item(f"SUM({one})", "BIGINT"), Item(f"AVG({one})", "DOUBLE"), Item(f"COUNT({one})", "BIGINT")]
            if of.exact:
                found += [Item(f"LATEST_BY_OFFSET({one})", "BIGINT"), Item(f"EARLIEST_BY_OFFSET({one})", "BIGINT")]
            if of.kind == "stream":
                found += [Item(f"COUNT_DISTINCT({one})", "BIGINT"), Item(f"TOPK({one}, 2)", "ARRAY<BIGINT>")]
                found += [
                    Item(f"MAX({one})", "BIGINT"),
                    Item(f"MIN({one})", "BIGINT"),
                    Item(f"ARRAY_SORT(COLLECT_LIST({one}))", "ARRAY<BIGINT>"),
                ]
        if of.flat:
            found = [item for item in found if has_flat_state(item)]
        return rng.choice(found)

    # -- choices

    def _near(self, known: dict[str, Relation], fits: Callable[[Relation], bool] = lambda _: True) -> Relation:
        """More often something that was made last, so that chains grow."""
        found = [r for r in known.values() if fits(r)]
        return self._pick(found[-3:] if self.rng.random() < 0.4 else found)

    def _pick(self, found: Sequence[Relation]) -> Relation:
        if not found:
            raise Unfit("there is none")
        return self.rng.choice(found)

    def _column(self, of: Relation, sql_type: str) -> str:
        found = [n for n, t in of.types.items() if t == sql_type]
        if not found:
            raise Unfit(f"{of.name} has no {sql_type}")
        return self.rng.choice(found)
