"""The syntax tree of a query in standard SQL: one node per construct, with its span, names folded to lower case unless quoted.

Parentheses leave no node, except around a query with clauses of its own. A row of ANDs or ORs is one node of many operands. The generator
writes every tree as text that reads back as the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import WindowClause, WithinClause


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of all nodes. Spans do not count in comparisons."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


# --- types ---


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type as written, lower case, of one spelling where the standard has several (`character varying` is `varchar`).

    parameters: `numeric(10, 2)`. args: of `array<t>` and `map<k, v>`. fields: of `struct<a int>`. `int[][]` is an `array` of an `array`.
    """

    name: str
    parameters: tuple[int, ...] = ()
    args: tuple[TypeName, ...] = ()
    fields: tuple[tuple[str, TypeName], ...] = ()


# --- values ---


@dataclass(frozen=True, slots=True)
class ColumnRef(Node):
    """`c`, `t.c` or `schema.t.c`."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal; value: digits as written, the text of a string, `true`, `false` or `null`."""

    kind: Literal["number", "string", "bool", "null"]
    value: str


@dataclass(frozen=True, slots=True)
class TypedText(Node):
    """`DATE '2024-05-01'`: a text of a type."""

    type: TypeName
    text: str


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """`INTERVAL '1' DAY`, `INTERVAL '1 day 02:00'`, `INTERVAL '1-2' YEAR TO MONTH`. units: upper case, singular, first and last."""

    text: str
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecialValue(Node):
    """CURRENT_DATE, CURRENT_TIMESTAMP and their like, upper case; precision of fractional seconds where given."""

    name: str
    precision: int | None = None


@dataclass(frozen=True, slots=True)
class Default(Node):
    """DEFAULT in VALUES of an INSERT and in SET of an UPDATE."""


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `t.*`; of: the expression in front of `.*`, where it is no plain name; excluded: columns of EXCEPT (...)."""

    qualifier: tuple[str, ...] = ()
    of: Expr | None = None
    excluded: tuple[ColumnRef, ...] = ()


# --- operators ---


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A sign or another prefix operator."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An infix operator between two values: arithmetic, comparison, `||`, and those of JSON, bits and patterns."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """`a AND b AND c` or `a OR b OR c`: two operands or more, in order."""

    op: Literal["and", "or"]
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """NOT operand."""

    operand: Expr


@dataclass(frozen=True, slots=True)
class IsTest(Node):
    """operand IS [NOT] NULL, TRUE, FALSE or UNKNOWN."""

    operand: Expr
    test: Literal["null", "true", "false", "unknown"]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Distinct(Node):
    """left IS [NOT] DISTINCT FROM right."""

    left: Expr
    right: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Node):
    """operand [NOT] BETWEEN [SYMMETRIC] low AND high."""

    operand: Expr
    low: Expr
    high: Expr
    negated: bool = False
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class Like(Node):
    """operand [NOT] LIKE pattern [ESCAPE escape]."""

    kind: Literal["like", "ilike", "similar"]
    operand: Expr
    pattern: Expr
    escape: Expr | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InList(Node):
    """operand [NOT] IN (items)."""

    operand: Expr
    items: tuple[Expr, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InQuery(Node):
    """operand [NOT] IN (query)."""

    operand: Expr
    query: Query
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(Node):
    """operand op ANY (of) or ALL (of); of: a query or an array. SOME is ANY."""

    op: str
    operand: Expr
    quantifier: Literal["any", "all"]
    of: Expr | Query


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """EXISTS (query)."""

    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Node):
    """A query in parentheses as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """CAST(operand AS type) or operand::type; safe: TRY_CAST."""

    operand: Expr
    type: TypeName
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Case(Node):
    """CASE [subject] WHEN ... THEN ... [ELSE otherwise] END."""

    subject: Expr | None
    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None = None


@dataclass(frozen=True, slots=True)
class Extract(Node):
    """EXTRACT(part FROM source); part in upper case."""

    part: str
    source: Expr


@dataclass(frozen=True, slots=True)
class AtTimeZone(Node):
    """operand AT TIME ZONE zone."""

    operand: Expr
    zone: Expr


@dataclass(frozen=True, slots=True)
class Collate(Node):
    """operand COLLATE name."""

    operand: Expr
    name: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayItems(Node):
    """ARRAY[a, b]."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ArrayQuery(Node):
    """ARRAY(query)."""

    query: Query


@dataclass(frozen=True, slots=True)
class Row(Node):
    """ROW(a, b), or (a, b) of two values or more (explicit: with the word)."""

    items: tuple[Expr, ...]
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class MapItems(Node):
    """MAP(key := value, ...)."""

    items: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class StructItems(Node):
    """STRUCT(name := value, ...)."""

    items: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """base[index]."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """base[low:high]; either may be missing."""

    base: Expr
    low: Expr | None = None
    high: Expr | None = None


@dataclass(frozen=True, slots=True)
class Field(Node):
    """(base).name, or base->name (arrow), which is a part of JSON where the base is JSONB."""

    base: Expr
    name: str
    arrow: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Named(Node):
    """`name => value` as an argument: a named argument, or a lambda of one parameter, as the function takes it."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class LambdaExpr(Node):
    """`(x, y) => body` as an argument."""

    parameters: tuple[str, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class TableArgument(Node):
    """`TABLE name [PARTITION BY ...]` as an argument of a table function."""

    name: tuple[str, ...]
    partition_by: tuple[Expr, ...] = ()


# --- calls ---


@dataclass(frozen=True, slots=True)
class OrderItem(Node):
    """One expression of ORDER BY, its direction and the place of NULLs as far as written."""

    expr: Expr
    direction: Literal["asc", "desc"] | None = None
    nulls: Literal["first", "last"] | None = None


@dataclass(frozen=True, slots=True)
class Bound(Node):
    """One end of a frame; offset: of `n PRECEDING` and `n FOLLOWING`."""

    kind: Literal["unbounded preceding", "preceding", "current row", "following", "unbounded following"]
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class Frame(Node):
    """ROWS|RANGE|GROUPS [BETWEEN] start [AND end] [EXCLUDE ...]. end: None without BETWEEN."""

    unit: Literal["rows", "range", "groups"]
    start: Bound
    end: Bound | None = None
    exclude: Literal["", "current row", "group", "ties", "no others"] = ""


@dataclass(frozen=True, slots=True)
class WindowSpec(Node):
    """What stands behind OVER or in WINDOW. base: the named window it starts from; bare: `OVER base` without parentheses."""

    base: str = ""
    partition_by: tuple[Expr, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: Frame | None = None
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A call of a function. star: `count(*)`. name: lower case, as written if quoted; a schema in front in parts of its own."""

    name: tuple[str, ...]
    args: tuple[Expr, ...] = ()
    star: bool = False
    distinct: bool = False
    order_by: tuple[OrderItem, ...] = ()
    within_group: tuple[OrderItem, ...] = ()
    filter: Expr | None = None
    nulls: Literal["", "ignore", "respect"] = ""
    over: WindowSpec | None = None


Expr = (
    ColumnRef | Constant | TypedText | Interval | SpecialValue | Default | Star | Unary | Binary | Logical | Not | IsTest | Distinct
    | Between | Like | InList | InQuery | Quantified | Exists | ScalarQuery | Cast | Case | Extract | AtTimeZone | Collate | ArrayItems
    | ArrayQuery | Row | MapItems | StructItems | Subscript | Slice | Field | Named | LambdaExpr | TableArgument | Call
)  # fmt: skip


# --- relations ---


@dataclass(frozen=True, slots=True)
class Alias(Node):
    """`AS name (columns)` of a relation; types: of a column definition list."""

    name: str
    columns: tuple[str, ...] = ()
    types: tuple[TypeName, ...] = ()


@dataclass(frozen=True, slots=True)
class Table(Node):
    """A named relation. as_of: of FOR SYSTEM_TIME AS OF."""

    name: tuple[str, ...]
    alias: Alias | None = None
    as_of: Expr | None = None


@dataclass(frozen=True, slots=True)
class Derived(Node):
    """A query in parentheses in FROM."""

    query: Query
    alias: Alias | None = None
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction(Node):
    """A function in FROM: UNNEST, generate_series, tumble, hop; wrapped: in TABLE(...)."""

    call: Call
    alias: Alias | None = None
    ordinality: bool = False
    lateral: bool = False
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Join(Node):
    """left JOIN right. kind: comma is the list of FROM; other kinds (ANTI, SEMI, ASOF, LOOKUP, ...) in `variant`, upper case.

    at: the words that name the join.
    """

    kind: Literal["inner", "left", "right", "full", "cross", "comma"]
    left: Relation
    right: Relation
    on: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
    within: WithinClause | None = None
    variant: str = ""
    at: Span = field(default=NOWHERE, compare=False, repr=False)


Relation = Table | Derived | TableFunction | Join


# --- queries ---


@dataclass(frozen=True, slots=True)
class Item(Node):
    """One item of a select list."""

    expr: Expr
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Grouping(Node):
    """`()`, `(a, b)` inside GROUPING SETS, GROUPING SETS (...), ROLLUP (...) and CUBE (...)."""

    kind: Literal["set", "sets", "rollup", "cube"]
    elements: tuple[GroupElement, ...]


GroupElement = Expr | Grouping


@dataclass(frozen=True, slots=True)
class NamedWindow(Node):
    """One entry of WINDOW: `w AS (...)`."""

    name: str
    spec: WindowSpec


@dataclass(frozen=True, slots=True)
class Select(Node):
    """SELECT. items: none in `SELECT FROM t`, which EXISTS may ask for. distinct_on: of DISTINCT ON. time_window, partition_by: FlowQL's WINDOW TUMBLING (...) and PARTITION BY."""

    items: tuple[Item, ...]
    source: Relation | None = None
    distinct: bool = False
    distinct_on: tuple[Expr, ...] = ()
    time_window: WindowClause | None = None
    where: Expr | None = None
    group_by: tuple[GroupElement, ...] = ()
    partition_by: tuple[Expr, ...] = ()
    having: Expr | None = None
    windows: tuple[NamedWindow, ...] = ()
    qualify: Expr | None = None


@dataclass(frozen=True, slots=True)
class Values(Node):
    """VALUES (1, 'a'), (2, 'b')."""

    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """left UNION|INTERSECT|EXCEPT [ALL] [CORRESPONDING [BY (...)]] right. at: the words of the operation."""

    op: Literal["union", "intersect", "except"]
    left: Body
    right: Body
    all: bool = False
    corresponding: bool = False
    by: tuple[str, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class With(Node):
    """One common table expression: name (columns) AS [NOT] MATERIALIZED (query)."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()
    materialized: bool | None = None


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A query with what belongs to the whole of it. limit: None without one; LIMIT ALL is none. emit: FlowQL's and RisingWave's."""

    body: Body
    with_: tuple[With, ...] = ()
    recursive: bool = False
    order_by: tuple[OrderItem, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    with_ties: bool = False
    emit: Literal["changes", "final", "on window close"] | None = None


Body = Select | Values | SetOperation | Query


N = TypeVar("N", bound=Node)
