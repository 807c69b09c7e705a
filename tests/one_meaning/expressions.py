"""Random expressions over all types of the standard dialect, as text that PostgreSQL reads alike."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.one_meaning.tables import TYPES, literal
from tests.standard_views.expressions import ORDERED, Expressions, Ref, Scope

ZONES = ("Europe/Berlin", "America/New_York", "UTC", "Asia/Kolkata")
UNITS = ("hour", "day", "week", "month", "quarter", "year")
PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "DOW", "DOY", "QUARTER", "WEEK", "ISODOW", "ISOYEAR")
CONTAINED = ("{}", "[1]", '{"a": 1}')
Choice = Callable[[], str]


class WideExpressions(Expressions):
    """Also of arrays, JSONB and moments, and with functions whose results DuckDB gives another meaning or type.

    A value at the edge of its type may make an expression fail for a row: see `Statement`. labels: what is in them.
    """

    types = TYPES
    natural = True

    def __init__(self, rng: Random, labels: set[str]) -> None:
        super().__init__(rng)
        self._labels = labels

    def _literal(self, type_: str) -> str:
        return literal(self._rng, type_, 5, edges=0.02)

    def _computed(self, scope: Scope, type_: str, depth: int) -> str:
        plain = type_ not in ("timestamptz", "ints", "texts", "jsonb")
        if plain and self._rng.random() < 0.45:
            return super()._computed(scope, type_, depth)
        label, made = self._rng.choice(self._choices(scope, type_, depth))
        self._labels.add(label)
        return made()

    def _choices(self, scope: Scope, type_: str, depth: int) -> list[tuple[str, Choice]]:
        def v(t: str = type_) -> str:
            return self.value(scope, t, depth)

        def c() -> str:
            return self.condition(scope, depth)

        match type_:
            case "int":
                return self._ints(v)
            case "bigint":
                return self._bigints(v)
            case "double":
                return self._doubles(v)
            case "decimal":
                return self._decimals(v)
            case "text":
                return self._texts(v)
            case "bool":
                return [("condition", lambda: f"({c()})")]
            case "date" | "timestamp" | "micros" | "timestamptz":
                return self._times(v, type_)
            case "ints" | "texts":
                return self._arrays(v, "int" if type_ == "ints" else "text")
        return self._jsonbs(v)

    def _ints(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        return [
            ("division", lambda: f"({v()} / {rng.choice(('2', '3', '-2', f'NULLIF({v()}, 0)'))})"),
            ("modulo", lambda: f"MOD({v()}, {rng.choice((3, -3))})"),
            ("bits", lambda: f"({v()} {rng.choice('&|#')} {v()})"),
            ("bits", lambda: f"(~ {v()})"),
            ("bits", lambda: f"({v()} {rng.choice(('<<', '>>'))} 1)"),
            ("length", lambda: f"{rng.choice(('LENGTH', 'CHAR_LENGTH', 'OCTET_LENGTH', 'ASCII'))}({v('text')})"),
            ("position", lambda: rng.choice((f"POSITION('a' IN {v('text')})", f"STRPOS({v('text')}, 'b')"))),
            ("subscript", lambda: f"({v('ints')})[{rng.choice((1, 2, 0, -1))}]"),
            ("cardinality", lambda: rng.choice((f"CARDINALITY({v('ints')})", f"ARRAY_LENGTH({v('texts')}, 1)"))),
            ("array position", lambda: f"ARRAY_POSITION({v('texts')}, {v('text')})"),
            ("cast of decimal", lambda: f"CAST({v('decimal')} AS INT)"),
            ("cast of double", lambda: f"CAST({v('double')} AS INT)"),
            ("extract", lambda: f"CAST(EXTRACT({rng.choice(PARTS)} FROM {v('timestamp')}) AS INT)"),
            ("date minus date", lambda: f"({v('date')} - {v('date')})"),
            ("case subject", lambda: f"CASE {v()} WHEN 1 THEN 10 WHEN {v()} THEN 20 ELSE {v()} END"),
            ("jsonb number", lambda: f"CASE WHEN JSONB_TYPEOF({(j := v('jsonb'))}->'a') = 'number' THEN CAST({j}->>'a' AS INT) END"),
            ("jsonb length", lambda: f"CASE WHEN JSONB_TYPEOF({(j := v('jsonb'))}) = 'array' THEN JSONB_ARRAY_LENGTH({j}) END"),
        ]  # fmt: skip

    def _bigints(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        return [
            ("division", lambda: f"({v()} / {rng.choice(('2', '7', '-3'))})"),
            ("arithmetic", lambda: f"({v()} - {v('int')})"),
            ("modulo", lambda: f"({v()} % 5)"),
            ("bits", lambda: f"({v()} & {v('int')})"),
            ("cast of decimal", lambda: f"CAST({v('decimal')} AS BIGINT)"),
            ("cast of double", lambda: f"CAST({v('double')} AS BIGINT)"),
            ("cast of text", lambda: f"CAST(CAST({v()} AS VARCHAR) AS BIGINT)"),
            ("number of case", lambda: f"CASE WHEN {v('bool')} THEN {v()} ELSE 0 END"),
        ]

    def _doubles(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        return [
            ("division of double", lambda: f"({v()} / {rng.choice(('2', '4.0', '3', f'NULLIF({v()}, 0)'))})"),
            ("round of double", lambda: f"ROUND({v()})"),
            ("floor", lambda: f"{rng.choice(('FLOOR', 'CEIL', 'TRUNC', 'SIGN'))}({v()})"),
            ("root", lambda: f"SQRT(ABS({v()}))"),
            ("power", lambda: f"POWER({v()}, 2)"),
            ("double from decimal", lambda: f"CAST({v('decimal')} AS DOUBLE PRECISION)"),
            ("double from text", lambda: f"CAST(CAST({v()} AS VARCHAR) AS DOUBLE PRECISION)"),
            ("double and int", lambda: f"({v('int')} * {v()})"),
            ("double and decimal", lambda: f"({v('decimal')} + {v()})"),
            ("case of double and int", lambda: f"CASE WHEN {v('bool')} THEN {v()} ELSE {v('int')} END"),
            ("logarithm", lambda: f"LN(ABS({v()}) + 1)"),
            ("negation", lambda: f"(- {v()})"),
        ]  # fmt: skip

    def _decimals(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        return [
            ("round of decimal", lambda: f"CAST(ROUND({v()}, {rng.choice((0, 1, -1))}) AS DECIMAL(10, 2))"),
            ("decimal product", lambda: f"CAST({v()} * {rng.choice(('0.5', '1.25', '-2'))} AS DECIMAL(10, 2))"),
            ("decimal quotient", lambda: f"CAST({v()} / {rng.choice(('3', '1.5', '-7'))} AS DECIMAL(10, 2))"),
            ("decimal from double", lambda: f"CAST({v('double')} AS DECIMAL(10, 2))"),
            ("decimal from text", lambda: f"CAST(CAST({v()} AS VARCHAR) AS DECIMAL(10, 2))"),
            ("trunc of decimal", lambda: f"CAST({rng.choice(('TRUNC', 'FLOOR', 'CEIL', 'ROUND'))}({v()}) AS DECIMAL(10, 2))"),
            ("modulo", lambda: f"CAST(MOD({v()}, 0.7) AS DECIMAL(10, 2))"),
        ]  # fmt: skip

    def _texts(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        return [
            ("left or right", lambda: f"{rng.choice(('LEFT', 'RIGHT'))}({v()}, {rng.choice((1, 2, -1))})"),
            ("pad", lambda: f"{rng.choice(('LPAD', 'RPAD'))}({v()}, 4, 'xy')"),
            ("trim", lambda: f"{rng.choice(('TRIM', 'LTRIM', 'RTRIM', 'BTRIM'))}({v()})"),
            ("reverse", lambda: f"REVERSE({v()})"),
            ("repeat", lambda: f"REPEAT({v()}, 2)"),
            ("split_part", lambda: f"SPLIT_PART({v()}, {rng.choice((chr(39) + 'a' + chr(39), chr(39) * 2))}, {rng.choice((1, 2, -1))})"),
            ("concat", lambda: rng.choice((f"CONCAT({v()}, {v()})", f"CONCAT_WS('-', {v()}, {v()})"))),
            ("initcap", lambda: f"INITCAP({v()})"),
            ("translate", lambda: f"TRANSLATE({v()}, 'ab', 'x')"),
            ("overlay", lambda: f"OVERLAY({v()} PLACING 'z' FROM 1 FOR 1)"),
            ("md5", lambda: f"MD5({v()})"),
            ("substring", lambda: f"SUBSTRING({v()}, {rng.choice((2, 0, -1))}, {rng.choice((1, 3))})"),
            ("regexp_replace", lambda: f"REGEXP_REPLACE({v()}, '[ab]+', '<\\&>', 'g')"),
            ("text of double", lambda: f"CAST({v('double')} AS VARCHAR)"),
            ("text of decimal", lambda: f"CAST({v('decimal')} AS VARCHAR)"),
            ("text of bool", lambda: f"CAST({v('bool')} AS VARCHAR)"),
            ("text of time", lambda: f"CAST({v(rng.choice(('date', 'timestamp', 'micros')))} AS VARCHAR)"),
            ("text of array", lambda: f"CAST({v(rng.choice(('ints', 'texts')))} AS VARCHAR)"),
            ("text of jsonb", lambda: f"CAST({v('jsonb')} AS VARCHAR)"),
            ("to_char", lambda: f"TO_CHAR({v('timestamp')}, '{rng.choice(('YYYY-MM-DD HH24:MI:SS.MS', 'Day Mon DD', 'IYYY-IW'))}')"),
            ("array_to_string", lambda: f"ARRAY_TO_STRING({v('texts')}, ',', '*')"),
            ("subscript", lambda: f"({v('texts')})[1]"),
            ("jsonb text", lambda: f"({v('jsonb')} ->> 'a')"),
            ("jsonb path", lambda: f"({v('jsonb')} #>> '{{b,0}}')"),
            ("jsonb_typeof", lambda: f"JSONB_TYPEOF({v('jsonb')})"),
            ("concat of number", lambda: f"({v()} || {v('int')})"),
        ]  # fmt: skip

    def _times(self, v: Callable[..., str], type_: str) -> list[tuple[str, Choice]]:
        rng = self._rng
        step = rng.choice(("INTERVAL '1' DAY", "INTERVAL '1' MONTH", "INTERVAL '90' MINUTE", "INTERVAL '-1' YEAR"))
        if type_ == "date":
            return [
                ("date plus days", lambda: f"({v()} - {rng.choice((1, 31))})"),
                ("date of moment", lambda: f"CAST({v('timestamp')} AS DATE)"),
                ("make_date", lambda: f"MAKE_DATE(2024, {rng.randint(1, 12)}, 1 + ABS({v('int')} % 28))"),
            ]
        if type_ == "timestamptz":
            return [
                ("at time zone", lambda: f"({v('timestamp')} AT TIME ZONE '{rng.choice(ZONES)}')"),
                ("moment plus interval", lambda: f"({v()} + INTERVAL '90' MINUTE)"),
            ]
        moved = [
            ("moment plus interval", lambda: f"({v()} + {step})"),
            ("date_trunc", lambda: f"DATE_TRUNC('{rng.choice(UNITS)}', {v()})"),
        ]
        if type_ == "timestamp":
            moved += [
                ("at time zone", lambda: f"({v('timestamptz')} AT TIME ZONE '{rng.choice(ZONES)}')"),
                ("date plus interval", lambda: f"({v('date')} + {step})"),
            ]
        return moved

    def _arrays(self, v: Callable[..., str], element: str) -> list[tuple[str, Choice]]:
        rng = self._rng
        found: list[tuple[str, Choice]] = [
            ("array", lambda: f"ARRAY[{v(element)}, {v(element)}]"),
            ("array append", lambda: f"({v()} || {v(element)})"),
            ("array concat", lambda: f"({v()} || {v()})"),
            ("array function", lambda: f"{rng.choice(('ARRAY_REMOVE', 'ARRAY_APPEND'))}({v()}, {v(element)})"),
            ("slice", lambda: f"({v()})[{rng.choice(('1:2', '2:', ':1', '0:1'))}]"),
            ("case of array", lambda: f"CASE WHEN {v('bool')} THEN {v()} END"),
            ("coalesce of array", lambda: f"COALESCE({v()}, {v()})"),
        ]
        if element == "text":
            found.append(("string_to_array", lambda: f"STRING_TO_ARRAY({v('text')}, {rng.choice((chr(39) + 'a' + chr(39), 'NULL'))})"))  # fmt: skip
        return found

    def _jsonbs(self, v: Callable[..., str]) -> list[tuple[str, Choice]]:
        rng = self._rng
        of = rng.choice(("int", "text", "decimal", "double", "bool", "date", "timestamp", "ints", "texts"))
        return [
            ("jsonb field", lambda: f"({v()} -> {rng.choice((chr(39) + 'a' + chr(39), '0', '-1'))})"),
            ("jsonb path", lambda: f"({v()} #> '{{b,0}}')"),
            ("jsonb concat", lambda: f"({v()} || '{{\"z\": 1}}'::jsonb)"),
            ("jsonb without", lambda: f"CASE WHEN JSONB_TYPEOF({(j := v())}) = 'object' THEN {j} - 'a' END"),
            ("to_jsonb", lambda: f"TO_JSONB({v(of)})"),
            ("jsonb_build", lambda: f"JSONB_BUILD_OBJECT('k', {v(of)}, 'l', {v('int')})"),
            ("jsonb_build", lambda: f"JSONB_BUILD_ARRAY({v(of)}, {v('text')})"),
            ("coalesce of jsonb", lambda: f"COALESCE({v()}, {v()})"),
        ]

    def condition(self, scope: Scope, depth: int = 2) -> str:
        rng = self._rng
        if depth <= 0 or rng.random() < 0.65:
            return super().condition(scope, depth)
        text, other = self.column(scope, ("text",)), self.column(scope, ORDERED)
        array, json = self.column(scope, ("ints", "texts")), self.column(scope, ("jsonb",))
        choices = [
            *self._of_text(text),
            *self._of_order(scope, other),
            *self._of_array(scope, array),
            *self._of_json(json),
        ]
        if not choices:
            return super().condition(scope, depth)
        label, made = rng.choice(choices)
        self._labels.add(label)
        return made()

    def _of_text(self, x: Ref | None) -> list[tuple[str, Choice]]:
        if x is None:
            return []
        rng = self._rng
        return [
            ("ilike", lambda: f"{x.text} {rng.choice(('', 'NOT '))}ILIKE '{rng.choice(('A%', '%é%', '_b'))}'"),
            ("similar to", lambda: f"{x.text} SIMILAR TO '{rng.choice(('(a|b)%', '[a-z]+', '%'))}'"),
            ("regular expression", lambda: f"{x.text} {rng.choice(('~', '!~', '~*'))} '{rng.choice(('^a', 'b$', '[[:upper:]]'))}'"),
            ("like escape", lambda: f"{x.text} LIKE '!%%' ESCAPE '!'"),
            ("starts with", lambda: f"STARTS_WITH({x.text}, 'a')"),
        ]  # fmt: skip

    def _of_order(self, scope: Scope, x: Ref | None) -> list[tuple[str, Choice]]:
        if x is None:
            return []
        rng, t = self._rng, x.type
        return [
            ("between symmetric", lambda: f"{x.text} BETWEEN SYMMETRIC {self.constant(t)} AND {self.constant(t)}"),
            ("is unknown", lambda: f"({x.text} = {self.value(scope, t, 0)}) IS {rng.choice(('', 'NOT '))}UNKNOWN"),
            ("row comparison", lambda: f"({x.text}, {self.value(scope, 'int', 0)}) {rng.choice(('<', '=', '>='))} ({self.constant(t)}, 1)"),
            ("any of array", lambda: f"{x.text} {rng.choice(('=', '<>', '<'))} {rng.choice(('ANY', 'ALL'))} (ARRAY[{self.constant(t)}, {self.constant(t)}])"),
            ("mixed numbers", lambda: f"{self.value(scope, 'int', 0)} {rng.choice(('=', '<', '>='))} {self.value(scope, rng.choice(('double', 'decimal')), 1)}"),
            ("in list", lambda: f"{x.text} IN ({self.constant(t)}, {self.constant(t)}, {self.value(scope, t, 1)})"),
        ]  # fmt: skip

    def _of_array(self, scope: Scope, x: Ref | None) -> list[tuple[str, Choice]]:
        if x is None:
            return []
        rng, element = self._rng, "int" if x.type == "ints" else "text"
        return [
            ("any of array", lambda: f"{self.value(scope, element, 0)} = {rng.choice(('ANY', 'ALL'))} ({x.text})"),
            ("array contains", lambda: f"{x.text} {rng.choice(('@>', '&&', '<@'))} {self.value(scope, x.type, 1)}"),
            ("array comparison", lambda: f"{x.text} {rng.choice(('=', '<', '<>'))} {self.value(scope, x.type, 1)}"),
        ]

    def _of_json(self, x: Ref | None) -> list[tuple[str, Choice]]:
        if x is None:
            return []
        rng = self._rng
        return [
            ("jsonb has", lambda: f"{x.text} ? 'a'"),
            ("jsonb contains", lambda: f"{x.text} @> '{rng.choice(CONTAINED)}'"),
            ("jsonb comparison", lambda: f"{x.text} {rng.choice(('=', '<>', '<'))} {self.constant('jsonb')}"),
        ]
