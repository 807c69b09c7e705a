"""Statements by the grammar, of every kind: most are right up to the planner, some are wrong on purpose."""

from __future__ import annotations

import random
from dataclasses import dataclass

from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    array,
    decimal,
    map_of,
)
from tests.statements.expressions import POINT, TYPES, Column, Expressions

S_COLUMNS: list[Column] = [
    *(("k", INT), ("v", BIGINT), ("d", decimal(9, 2)), ("t", STRING), ("ts", TIMESTAMP), ("l", array(INT))),
    *(("m", map_of(STRING, DOUBLE)), ("p", POINT), ("b", BOOLEAN), ("f", DOUBLE), ("y", BYTES), ("day", DATE)),
    ("at", TIME),
]
SOURCES: dict[str, tuple[str, list[Column]]] = {
    "s": ("stream", S_COLUMNS),
    "r": ("stream", [("k", INT), ("w", STRING)]),
    "c": ("table", [("k", INT), ("name", STRING)]),
    "w": ("table", [("k", INT), ("n", BIGINT)]),
}
DURATIONS = ("1 SECOND", "10 MINUTES", "1 HOUR", "2 DAYS", "500 MILLISECONDS", "1 HOUR", "7 DAYS", "0 SECONDS")
INTERVALS = ("INTERVAL '1' MINUTE", "INTERVAL '10' MINUTE", "INTERVAL '1' HOUR", "INTERVAL '1' DAY")
FORMATS = (
    "JSON",
    "JSON",
    "JSON",
    "AVRO",
    "AVRO",
    "DELIMITED",
    "KAFKA",
    "PROTOBUF",
    "JSON_SR",
    "PROTOBUF_NOSR",
    "NONE",
    "FOO",
)
DEPTHS = (1, 1, 2, 2, 3, 4, 7)


@dataclass(frozen=True, slots=True)
class Relation:
    """What stands in FROM: its text, the columns one may name, and whether it is a stream or a table."""

    text: str
    columns: list[Column]
    kind: str
    windowed: bool = False  # by a window function


class Grammar:
    """Writes statements over the streams and tables of `sources.SOURCES`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules = [
            *[self._create_as] * 12,
            *[self._insert_select, self._insert_values, self._declare, self._ask, self._small] * 2,
        ]

    def statement(self) -> str:
        return self._rng.choice(self._rules)() + ";"

    # -- queries

    def _create_as(self) -> str:
        relation = self._from()
        grouped = relation.windowed or self._often(0.4)
        kind = "TABLE" if grouped or relation.kind == "table" else "STREAM"
        if self._often(0.03):
            kind = "TABLE" if kind == "STREAM" else "STREAM"
        head = self._rng.choice(["CREATE", "CREATE", "CREATE OR REPLACE"])
        head += f" {kind} {self._rng.choice(['', '', 'IF NOT EXISTS '])}a"
        if self._often(0.1):
            head = "CREATE MATERIALIZED VIEW a"
        return f"{head}{self._with(0.3)} AS {self._query(relation, grouped=grouped)}"

    def _insert_select(self) -> str:
        relation = self._from()
        target, columns = self._rng.choice([("s", S_COLUMNS), ("r", SOURCES["r"][1])])
        make = Expressions(self._rng, relation.columns)
        items = ", ".join(f"{make.of(t, 1)} AS {n}" for n, t in columns)
        return f"INSERT INTO {target} SELECT {items} FROM {relation.text}{self._where(make)}"

    def _ask(self) -> str:
        relation = self._from()
        return self._query(relation, grouped=self._often(0.3)) + self._maybe(
            0.4, " EMIT CHANGES", " EMIT FINAL", " LIMIT 3"
        )

    def _query(self, relation: Relation, *, grouped: bool) -> str:
        make = Expressions(self._rng, relation.columns)
        items, tail = self._grouped(relation, make) if grouped else self._plain(relation, make)
        distinct = self._maybe(0.02, "DISTINCT ")
        emit = self._maybe(0.5, " EMIT CHANGES", *([" EMIT FINAL"] if "WINDOW" in tail or self._often(0.05) else []))
        return f"SELECT {distinct}{', '.join(items)} FROM {relation.text}{tail}{emit}{self._beyond()}"

    def _grouped(self, relation: Relation, make: Expressions) -> tuple[list[str], str]:
        """Select list and clauses of an aggregation."""
        window = "" if relation.windowed else self._maybe(0.5, self._window())
        keys = [make.of(self._rng.choice(TYPES), self._rng.randint(0, 1)) for _ in range(self._rng.choice((1, 1, 2)))]
        items = [f"{k} AS g{i}" for i, k in enumerate(keys)]
        items += [f"{make.aggregate(1)} AS x{i}" for i in range(self._rng.randint(1, 3))]
        if window:
            items += self._rng.choice([[], ["WINDOWSTART AS ws", "WINDOWEND AS we"]])
        if relation.windowed:
            keys += ["window_start", "window_end"]
            items += self._rng.choice([[], ["window_start", "window_end AS we"]])
        having = self._maybe(0.2, f" HAVING {make.aggregate(1)} > 1", " HAVING COUNT(*) > 1")
        return items, f"{window}{self._where(make)} GROUP BY {', '.join(keys)}{having}"

    def _plain(self, relation: Relation, make: Expressions) -> tuple[list[str], str]:
        """Select list and clauses of a query that does not group."""
        items = [text for text, _ in relation.columns if text.split(".")[-1] == "k"][:1]
        items += [f"{make.any(self._depth())} AS x{i}" for i in range(self._rng.randint(1, 3))]
        items += self._rng.choice([[], [], [], ["*"], ["EXPLODE(l) AS e"], ["ROWTIME AS rt"], ["p->*"]])
        if not self._often(0.15):
            return items[self._often(0.05) :], self._where(make)
        key = make.any(1)
        return [f"{key} AS y", *items[1:]], f"{self._where(make)} PARTITION BY {key}"

    def _beyond(self) -> str:
        """Clauses of standard SQL."""
        return self._maybe(
            0.04, " ORDER BY 1", " LIMIT 2", " UNION ALL SELECT k FROM r", " QUALIFY 1", " WINDOW q AS (PARTITION BY k)"
        )

    def _from(self) -> Relation:
        name = self._rng.choice("sssrcw")
        kind, columns = SOURCES[name]
        if self._often(0.08):
            return Relation(self._window_function(name), columns, kind, windowed=True)
        if self._often(0.04):
            return Relation(f"(SELECT * FROM {name}) q", columns, kind)
        if not self._often(0.3):
            return Relation(name + self._maybe(0.2, " q", " AS q"), columns, kind)
        text, known = f"{name} q0", [(f"q0.{n}", t) for n, t in columns]
        for i in range(1, self._rng.choice((2, 2, 3))):
            other = self._rng.choice("srcw")
            other_kind, other_columns = SOURCES[other]
            mine = [(f"q{i}.{n}", t) for n, t in other_columns]
            text += f" {self._join(other, i, self._within(kind, other_kind), known, mine)}"
            kind = "stream" if "stream" in (kind, other_kind) else "table"
            known += mine
        return Relation(text, known, kind)

    def _join(self, name: str, i: int, within: str, left: list[Column], right: list[Column]) -> str:
        kind = self._rng.choice(("JOIN", "INNER JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL OUTER JOIN"))
        kind = self._maybe(0.03, "CROSS JOIN") or kind
        on = f"q0.k = q{i}.k"
        if self._often(0.2):
            on = f"{Expressions(self._rng, left).of(INT, 1)} = {Expressions(self._rng, right).of(INT, 0)}"
        if self._often(0.1):
            on += f" AND {Expressions(self._rng, [*left, *right]).of(BOOLEAN, 1)}"
        return f"{kind} {name} q{i}{within} ON {on}"

    def _within(self, left: str, right: str) -> str:
        if not (left == right == "stream") and not self._often(0.03):
            return ""
        first, second, grace = (self._rng.choice(DURATIONS) for _ in range(3))
        span = self._rng.choice((first, f"({first}, {second})"))
        return f" WITHIN {span}" + self._maybe(0.4, f" GRACE PERIOD {grace}")

    def _window(self) -> str:
        size, other, grace = (self._rng.choice(DURATIONS) for _ in range(3))
        window = self._rng.choice(
            (f"TUMBLING (SIZE {size}", f"HOPPING (SIZE {size}, ADVANCE BY {other}", f"SESSION ({size}",
             f"CUMULATING (SIZE {size}, ADVANCE BY {other}")
        )  # fmt: skip
        return f" WINDOW {window}{self._maybe(0.2, ', RETENTION 7 DAYS')}{self._maybe(0.4, f', GRACE PERIOD {grace}')})"

    def _window_function(self, name: str) -> str:
        function = self._rng.choice(("TUMBLE", "HOP", "CUMULATE", "SESSION"))
        sizes = [self._rng.choice(INTERVALS) for _ in range(2 if function in ("HOP", "CUMULATE") else 1)]
        return f"TABLE({function}(TABLE {name}, DESCRIPTOR(ts), {', '.join(sizes)}))"

    def _where(self, make: Expressions) -> str:
        return f" WHERE {make.of(BOOLEAN, self._depth())}" if self._often(0.5) else ""

    # -- other statements

    def _declare(self) -> str:
        kind = self._rng.choice(("STREAM", "TABLE"))
        columns = [
            f"{n} {self._type(2)}"
            for n in self._rng.sample(["a", "b", "c", "`d d`", "rowtime"], self._rng.randint(0, 3))
        ]
        key = {"STREAM": "id INT KEY", "TABLE": "id STRING PRIMARY KEY"}[kind]
        columns = [*([key] if self._often(0.8) else []), *columns, *self._rng.choice([[], [], ["h BYTES HEADER('x')"]])]
        listed = f" ({', '.join(columns)})" if columns else ""
        return f"CREATE {self._maybe(0.1, 'OR REPLACE ', 'SOURCE ')}{kind} a{listed}{self._with(0.95, topic=True)}"

    def _type(self, depth: int) -> str:
        if depth and self._often(0.25):
            inner = self._type(depth - 1)
            return self._rng.choice(
                (f"ARRAY<{inner}>", f"MAP<STRING, {inner}>", f"STRUCT<x {inner}, `y y` INT>", f"MAP<{inner}, INT>")
            )
        return str(self._rng.choice((*TYPES[:10], "point", "DECIMAL(39, 2)", "VARCHAR(3)", "NOTHING")))

    def _with(self, chance: float, *, topic: bool = False) -> str:
        if not self._often(chance):
            return ""
        known = {
            "KAFKA_TOPIC": "'a'", "VALUE_FORMAT": f"'{self._rng.choice(FORMATS)}'", "KEY_FORMAT": f"'{self._rng.choice(FORMATS)}'",
            "FORMAT": f"'{self._rng.choice(FORMATS)}'", "PARTITIONS": self._rng.choice(("1", "4", "0", "-1", "'x'")),
            "TIMESTAMP": self._rng.choice(("'ts'", "'x0'", "'nowhere'")), "TIMESTAMP_FORMAT": "'yyyy-MM-dd'",
            "WRAP_SINGLE_VALUE": self._rng.choice(("true", "false")), "VALUE_DELIMITER": "'|'",
            "PRIORITY": self._rng.choice(("'critical'", "'urgent'")), "LATENCY_TARGET": "'5 ms'", "WINDOW_TYPE": "'SESSION'",
            "RETENTION_MS": "1000", "NO_SUCH": "1",
        }  # fmt: skip
        names = self._rng.sample(sorted(known), self._rng.randint(0 if topic else 1, 3))
        if topic and self._often(0.95):
            names = list(dict.fromkeys(["KAFKA_TOPIC", "VALUE_FORMAT", *names]))
        return f" WITH ({', '.join(f'{n}={known[n]}' for n in names)})"

    def _insert_values(self) -> str:
        name = self._rng.choice("srcw")
        make = Expressions(self._rng, [])
        columns = [c for c in SOURCES[name][1] if self._often(0.7)]
        listed = f" ({', '.join(n for n, _ in columns)})" if self._often(0.8) else ""
        values = ", ".join(make.of(t, self._rng.randint(0, 1)) for _, t in columns)
        return f"INSERT INTO {name}{listed} VALUES ({values})"

    def _small(self) -> str:
        name = self._rng.choice(("s", "r", "c", "w", "nowhere", "point"))
        return self._rng.choice(
            (
                f"DROP {self._rng.choice(('STREAM', 'TABLE', 'TYPE'))} {self._maybe(0.5, 'IF EXISTS ')}{name}{self._maybe(0.3, ' DELETE TOPIC')}",
                f"ALTER {self._rng.choice(('STREAM', 'TABLE'))} {name} ADD COLUMN z {self._type(1)}",
                f"CREATE TYPE q AS {self._type(3)}",
                f"SET 'ksql.{self._rng.choice(('x', 'query.y'))}' = '{self._rng.choice(FORMATS)}'",
                f"ASSERT VALUES {name} (k) VALUES (1)",
                f"DESCRIBE {name} EXTENDED",
                "LIST STREAMS",
                "SHOW FUNCTIONS",
                "EXPLAIN SELECT * FROM s",
                "DEFINE v = 'x'",
                "TERMINATE ALL",
                f"INSERT INTO {name} SELECT * FROM {self._rng.choice('srcw')}",
            )
        )

    # -- chances

    def _often(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _maybe(self, chance: float, *texts: str) -> str:
        return self._rng.choice(texts) if self._often(chance) else ""

    def _depth(self) -> int:
        return self._rng.choice(DEPTHS)
