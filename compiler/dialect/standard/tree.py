"""The syntax tree of a query in standard SQL: one node per construct, with its span, names folded to lower case unless quoted.

Names, literals, operators and constructors are those of `ast`, and hold what was written: numbers are texts of the kind "number", and
operators that ksqlDB lacks have these names, which the binder knows by `standard_forms`:

    ~ ~~ and others as in LEVELS  plus  and or (2 args or more)  is_true is_false is_unknown
    ilike similar between_symmetric  case_of (subject, when, then, ..., else)  row: (a, b)  ROW: with the word
    SLICE (base, low, high: an "int" that is not written)  EXTRACT (part, source)  TIMEZONE (zone, operand): AT TIME ZONE
    CURRENT_DATE and its like (digits of the second where written)

and negated forms not_... and is_not_.... Parentheses leave no node, except around a query with clauses of its own. The generator writes
every tree as text that reads back as the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import Func, Lit, SelectItem, TypeRef, WindowClause, WithinClause
from flowql.compiler.dialect.ast import Node as Node  # re-exported
from flowql.compiler.functions import sql_array_parts, sql_jsonb, sql_numbers

# Operators that are called as their functions are; others are called as they are written.
OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "||": "concat", "=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt",
    ">=": "ge", "^": "POWER", "^@": "STARTS_WITH", **sql_numbers.OPERATORS, **sql_array_parts.OPERATORS, **sql_jsonb.OPERATORS,
}  # fmt: skip
PREFIXES = {"~": sql_numbers.NOT, "@": "ABS", "|/": "SQRT", "||/": "CBRT"}  # in front of a value, beside the signs
_SIGNS = {name: sign for sign, name in (*OPERATORS.items(), *PREFIXES.items())}


def sign_of(operator: str) -> str:
    """The operator as it is written."""
    return _SIGNS.get(operator, operator)


def is_row(node: Node) -> TypeGuard[Func]:
    """Whether it is `(a, b)` or `ROW(a, b)`."""
    return isinstance(node, Func) and node.name in ("row", "ROW")


def number_text(node: Node | None) -> str:
    """A number as it is written; empty for any other node."""
    return str(node.value) if isinstance(node, Lit) and node.kind == "number" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Node):
    """Base of the nodes that standard SQL alone has."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


# --- values ---


@dataclass(frozen=True, slots=True)
class TypedText(Form):
    """`DATE '2024-05-01'`: a text of a type."""

    type: TypeRef
    text: str


@dataclass(frozen=True, slots=True)
class Interval(Form):
    """`INTERVAL '1' DAY`, `INTERVAL '1 day 02:00'`, `INTERVAL '1-2' YEAR TO MONTH`. units: upper case, singular, first and last."""

    text: str
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Default(Form):
    """DEFAULT in VALUES of an INSERT and in SET of an UPDATE."""


# --- operators ---


@dataclass(frozen=True, slots=True)
class InQuery(Form):
    """operand [NOT] IN (query)."""

    operand: Expr
    query: Query
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(Form):
    """operand op ANY (of) or ALL (of); of: a query or an array. SOME is ANY."""

    op: str
    operand: Expr
    quantifier: Literal["any", "all"]
    of: Expr | Query


@dataclass(frozen=True, slots=True)
class Exists(Form):
    """EXISTS (query)."""

    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Form):
    """A query in parentheses as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Collate(Form):
    """operand COLLATE name."""

    operand: Expr
    name: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayQuery(Form):
    """ARRAY(query)."""

    query: Query


@dataclass(frozen=True, slots=True)
class Named(Form):
    """`name => value` as an argument: a named argument, or a lambda of one parameter, as the function takes it."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class TableArgument(Form):
    """`TABLE name [PARTITION BY ...]` as an argument of a table function."""

    name: tuple[str, ...]
    partition_by: tuple[Expr, ...] = ()


# --- calls ---


@dataclass(frozen=True, slots=True)
class OrderItem(Form):
    """One expression of ORDER BY, its direction and the place of NULLs as far as written."""

    expr: Expr
    direction: Literal["asc", "desc"] | None = None
    nulls: Literal["first", "last"] | None = None


@dataclass(frozen=True, slots=True)
class Bound(Form):
    """One end of a frame; offset: of `n PRECEDING` and `n FOLLOWING`."""

    kind: Literal["unbounded preceding", "preceding", "current row", "following", "unbounded following"]
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class Frame(Form):
    """ROWS|RANGE|GROUPS [BETWEEN] start [AND end] [EXCLUDE ...]. end: None without BETWEEN.

    RisingWave's SESSION WITH GAP is from UNBOUNDED PRECEDING to the gap FOLLOWING.
    """

    unit: Literal["rows", "range", "groups", "session"]
    start: Bound
    end: Bound | None = None
    exclude: Literal["", "current row", "group", "ties", "no others"] = ""


@dataclass(frozen=True, slots=True)
class WindowSpec(Form):
    """The window behind OVER or in WINDOW. base: the named window it starts from; bare: `OVER base` without parentheses."""

    base: str = ""
    partition_by: tuple[Expr, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: Frame | None = None
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Call(Form):
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


Expr = Node
Item = SelectItem


# --- relations ---


@dataclass(frozen=True, slots=True)
class Alias(Form):
    """`AS name (columns)` of a relation; types: of a column definition list."""

    name: str
    columns: tuple[str, ...] = ()
    types: tuple[TypeRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Table(Form):
    """A named relation. as_of: of FOR SYSTEM_TIME AS OF."""

    name: tuple[str, ...]
    alias: Alias | None = None
    as_of: Expr | None = None


@dataclass(frozen=True, slots=True)
class Derived(Form):
    """A query in parentheses in FROM."""

    query: Query
    alias: Alias | None = None
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction(Form):
    """A function in FROM: UNNEST, generate_series, tumble, hop; wrapped: in TABLE(...)."""

    call: Call
    alias: Alias | None = None
    ordinality: bool = False
    lateral: bool = False
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Join(Form):
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
class Grouping(Form):
    """`()`, `(a, b)` inside GROUPING SETS, GROUPING SETS (...), ROLLUP (...) and CUBE (...)."""

    kind: Literal["set", "sets", "rollup", "cube"]
    elements: tuple[GroupElement, ...]


GroupElement = Expr | Grouping


@dataclass(frozen=True, slots=True)
class NamedWindow(Form):
    """One entry of WINDOW: `w AS (...)`."""

    name: str
    spec: WindowSpec


@dataclass(frozen=True, slots=True)
class Select(Form):
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
class Values(Form):
    """VALUES (1, 'a'), (2, 'b')."""

    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Form):
    """left UNION|INTERSECT|EXCEPT [ALL] [CORRESPONDING [BY (...)]] right. at: the words of the operation."""

    op: Literal["union", "intersect", "except"]
    left: Body
    right: Body
    all: bool = False
    corresponding: bool = False
    by: tuple[str, ...] = ()
    at: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class With(Form):
    """One common table expression: name (columns) AS [NOT] MATERIALIZED (query)."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()
    materialized: bool | None = None


@dataclass(frozen=True, slots=True)
class Query(Form):
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
