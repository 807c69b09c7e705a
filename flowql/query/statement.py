"""An interactive query before it is answered: whether it is allowed, and which relations, keys and columns it reads.

DuckDB's own parser answers; nothing is bound or run here. Conditions and columns only spare work: the statement itself is
evaluated in full over what they leave.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import duckdb

from flowql.compiler.diagnostics.source import NOWHERE
from flowql.query.bounds import unbounded
from flowql.query.errors import INVALID, REFUSED, TOO_LONG, QueryError, place, place_of_word

if TYPE_CHECKING:
    from flowql.compiler.analyze.relations.asked import AskedQuery

_GAP = r"(?:\s|--[^\n\r]*(?:[\n\r]|$)|/\*(?:(?!/\*|\*/).)*\*/)"  # a comment that is in another one is none
EXPLAIN = re.compile(rf"{_GAP}*explain\b(?:{_GAP}+analyze\b)?(?:{_GAP}*\([^)]*\))?", re.I | re.S)
_EXCERPT = re.compile(r"^LINE (\d+): (.*)\n( *\^+)", re.M)
_FOR_THE_SHELL = re.compile(r"\s*(SHOW|LIST|PRINT)\b", re.IGNORECASE)
_PUSH = re.compile(r"\bEMIT\s+CHANGES(?=\s*(?:;\s*)?$)", re.I)
_NAMED = re.compile(r'(?:"|with name )(\w+)')
_WRITES = ("INSERT_QUERY_NODE", "UPDATE_QUERY_NODE", "DELETE_QUERY_NODE", "MERGE_QUERY_NODE")
_LIKES = ("~~", "!~~", "~~*", "!~~*")
_HIDING = ("query", "query_table")
# DuckDB cannot be interrupted while it plans, and the time that takes grows with the fourth power: 64 joins take a second, 160 half a
# minute; 30 correlated sub-queries take as long as 100 joins.
JOINS_MAX, JOINS_OF_SUBQUERY = 64, 2
SELECTS_MAX = 1_000  # as well: 1,000 of UNION take a quarter of a second, 4,000 take 13
CHARS_MAX = 256 << 10
TREE_CHARS_MAX = 8 << 20  # of the tree as JSON, which one call reads with the lock of the interpreter: 10 ms a MiB
TOO_LARGE = "FQ2065"
SPLITTING = "put long lists of values into a table and join it, or make views of parts in the project"
SHORT_ROWS_MAX = 8_192  # that an answer may have, or skip, and still be short
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_LOOKING = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")
_STANDARD = "STANDARD_HANDLING"
_OF_ONE_ROW = ("COLUMN_REF", "STAR", "CONSTANT", "CAST", "TYPE", "COMPARISON", "CONJUNCTION", "CASE", "BETWEEN")
# Table functions that read nothing but what they are given, and DuckDB's own catalogue: others reach files, also those of the target.
_ALLOWED = ("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree")
_ALLOWED_PREFIXES = ("duckdb_", "pragma_")
# Parts of the catalogue that have paths of the machine.
_PATHS = frozenset(
    (
        *("duckdb_settings", "pg_settings", "duckdb_secrets", "duckdb_extensions", "duckdb_temporary_files"),
        *("duckdb_external_file_cache", "duckdb_logs", "duckdb_logs_parsed"),
    )
)
_SETTINGS = (
    "timezone",
    "calendar",
    "search_path",
    "schema",
    "default_order",
    "default_null_order",
    "threads",
    "memory_limit",
)
LOADING = "load files with:  flowql import FILE --table t,  into topics with:  flowql topic import"
ASKING = "an interactive query is one SELECT, WITH, VALUES, DESCRIBE, SUMMARIZE, EXPLAIN or SHOW; flowql exec changes rows, and flowql deploy queries"
SHELL = "the shell has more of these statements:  flowql shell -c '{} ...'"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as it is written. kind: INTEGER, NUMERIC, STRING, ... (DuckDB's word)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator value`; all conditions of a relation hold together. `=` may have several values (IN)."""

    column: str  # folded
    operator: str
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """An interactive query that is allowed.

    tables: names as written; ctes: folded names that WITH gives (a table of that name may be meant elsewhere). conditions: by folded name, of relations that are read in one place only. columns: folded
    names of all columns it can touch; None for all. is_short: its answer has few rows, so it may need few of what it reads. enough: so many rows
    of what it reads do, whichever they are; None if it may need all. functions: folded names of those it calls.
    unbounded: why what it makes of a row has no bound (`bounds.unbounded`). likes: bytes of `sql` before which a LIKE ends that has no ESCAPE
    and whose pattern may have a backslash. asked: of standard SQL, what is asked, and `sql` is what DuckDB computes it with. by_operators: why the
    operators of views compute it instead. is_plain: relations are in the types of the engine. bind: makes it of the relations that it reads, by their
    names in FROM; None where it is done.
    """

    sql: str
    tables: tuple[str, ...]
    ctes: frozenset[str] = frozenset()
    conditions: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    columns: frozenset[str] | None = None
    is_short: bool = False
    enough: int | None = None
    functions: frozenset[str] = frozenset()
    unbounded: frozenset[str] = frozenset()
    likes: tuple[int, ...] = ()
    asked: AskedQuery | None = None
    by_operators: str = ""
    is_plain: bool = False
    bind: Callable[[Statement, Mapping[str, Any]], Statement] | None = None


def check_table_function(name: str) -> None:
    """name: folded. Raises QueryError for one that reads more than it is given."""
    if name in _PATHS:
        raise _of_the_machine(name)
    if not is_open_table_function(name):
        title = f"{name}() is refused: files, the network and extensions are out of reach of an interactive query"
        raise QueryError(title, code=REFUSED, help=LOADING)


def is_open_table_function(name: str) -> bool:
    """Whether it is one of DuckDB that interactive queries may call. name: folded."""
    return name in (*_ALLOWED, *_HIDING) or name.startswith(_ALLOWED_PREFIXES)


def parse(
    sql: str, connection: duckdb.DuckDBPyConnection, check_from: Callable[[str], None] = check_table_function
) -> Statement:
    """Read a statement. Raises QueryError unless it is one interactive query. `connection` is empty and only used to parse.

    check_from: raises QueryError for table functions that may not be called, of folded names.
    """
    if len(sql) > CHARS_MAX:
        title = f"the text has {len(sql):,} characters, and an interactive query at most {CHARS_MAX:,}"
        raise QueryError(title, code=TOO_LARGE, help=SPLITTING)
    try:
        found = connection.extract_statements(sql)
    except duckdb.ConnectionException:  # the database was closed: nothing is wrong with the statement
        raise
    except duckdb.Error as error:
        raise invalid(sql, error) from error
    if len(found) != 1:
        title = "there is no statement" if not found else f"there are {len(found)} statements; send one at a time"
        raise QueryError(title, code=INVALID, help="flowql query 'SELECT ...'")
    kind, asked = found[0].type.name, found[0].query
    if kind == "EXPLAIN":
        explain = EXPLAIN.match(asked)
        if explain is None:
            raise QueryError(f"{kind} is refused after such comments", code=REFUSED, help="leave the comments out")
        inner = parse(asked[explain.end() :], connection, check_from)
        before = len(asked[: asked.index(inner.sql, explain.end())].encode())
        return replace(inner, sql=asked, is_short=True, likes=tuple(before + at for at in inner.likes))
    if kind == "MULTI":
        raise QueryError(
            "PIVOT without a list of values would become several statements",
            code=REFUSED,
            help="list the values: PIVOT ... ON c IN (...)",
        )
    if kind != "SELECT":
        raise QueryError(f"{kind} is refused: flowql query only reads", code=REFUSED, help=ASKING)
    return _select(asked, connection, check_from)


def first_line(error: Exception) -> str:
    """The message of DuckDB, without its excerpt of the statement."""
    return str(error).split("\n\n")[0].replace("\n", " ")


def invalid(sql: str, error: Exception) -> QueryError:
    """DuckDB's error about a statement, at the place it shows or at the name it complains of."""
    if changes := _PUSH.search(sql):
        title = "EMIT CHANGES asks for changes, which a subscription gives"
        help_ = "leave it out for the present rows, or:  flowql subscribe 'SELECT ... EMIT CHANGES'"
        return QueryError(title, code=INVALID, help=help_, span=place(sql, changes.start(), len(changes[0])))
    help_ = SHELL.format(verb[1].upper()) if (verb := _FOR_THE_SHELL.match(sql)) else ""
    message = str(error)
    excerpt = _EXCERPT.search(message)
    span = NOWHERE
    if excerpt is not None:
        lines = sql.split("\n")
        number, shown, marks = int(excerpt[1]), excerpt[2], excerpt[3]
        in_excerpt = marks.index("^") - len(f"LINE {number}: ")
        dots = 3 * shown.startswith("...")
        line = lines[number - 1] if number <= len(lines) else ""
        begin = line.find(shown[dots:].removesuffix("..."))
        if begin >= 0 and in_excerpt >= dots:
            before = sum(len(x) + 1 for x in lines[: number - 1])
            span = place(sql, before + begin + in_excerpt - dots, marks.count("^"))
    elif name := _NAMED.search(message):
        span = place_of_word(sql, name[1])
    return QueryError(first_line(error), code=INVALID, span=span, help=help_)


def _select(sql: str, connection: duckdb.DuckDBPyConnection, check_from: Callable[[str], None]) -> Statement:
    (row,) = connection.execute(
        "SELECT json_serialize_sql(?)", [sql]
    ).fetchall()  # to the end: the connection is free again
    assert row is not None
    if len(row[0]) > TREE_CHARS_MAX:
        raise QueryError("this query is too large to be read in an instance", code=TOO_LARGE, help=SPLITTING)
    try:
        tree = json.loads(row[0])
        nodes = list(objects_of(tree))
        grows = unbounded(tree, connection)
    except RecursionError:
        raise QueryError("this statement is nested too deeply", code=INVALID) from None
    if any(n.get("type") in _WRITES for n in nodes):
        raise QueryError("a statement that writes is refused: flowql query only reads", code=REFUSED, help=ASKING)
    for n in nodes:
        if n.get("function_name") in _HIDING and "catalog" in n:
            raise QueryError(
                f"{n['function_name']}() is refused: its inputs cannot be checked", code=REFUSED, help=ASKING
            )
        if n.get("function_name") == "current_setting" and not _is_shown_setting(n):
            raise _of_the_machine("current_setting")
        if n.get("type") == "TABLE_FUNCTION":
            check_from(str(n["function"]["function_name"]).casefold())
    _check_size(nodes)
    # Not get_table_names: it binds, and knows no column of tables that are not loaded yet.
    mentions = [n for n in nodes if n.get("type") == "BASE_TABLE"]
    for name in (str(m["table_name"]) for m in mentions):
        if name.casefold() in _PATHS:
            raise _of_the_machine(name)
    tables = {str(m["table_name"]) for m in mentions}
    named = {str(c["key"]).casefold() for n in nodes for c in (n.get("cte_map") or {}).get("map", ())}
    return Statement(
        sql,
        tuple(sorted(tables)),
        frozenset(named),
        _conditions(nodes, mentions),
        _columns(nodes, mentions),
        _is_short(tree["statements"][0]["node"]),
        _enough(tree["statements"][0]["node"]),
        frozenset(str(n["function_name"]).casefold() for n in nodes if n.get("function_name")),
        grows,
        tuple(sorted({int(n["query_location"]) + int(n["query_location_length"]) for n in nodes if _is_unescaped(n)})),
    )


def _is_unescaped(n: Mapping[str, Any]) -> bool:
    if n.get("function_name") not in _LIKES:
        return False
    literal = n["arguments"][1]["expression"].get("literal") or {}
    return "\\" in str(literal.get("text", "\\"))


def _of_the_machine(name: str) -> QueryError:
    return QueryError(f"{name} is refused: it shows paths of the machine", code=REFUSED, help=ASKING)


def _is_shown_setting(call: Mapping[str, Any]) -> bool:
    """Whether a call of current_setting names a setting that says nothing of the machine's files."""
    literals = [(a.get("expression") or {}).get("literal") or {} for a in call.get("arguments") or ()]
    return [str(literal.get("text")).casefold() in _SETTINGS for literal in literals] == [True]


def _check_size(nodes: list[dict[str, Any]]) -> None:
    """Counts a query of WITH ... AS NOT MATERIALIZED wherever it is named, also within others like it."""
    joins = copied = selects = 0
    for n in nodes:
        joins += 1 if n.get("type") == "JOIN" else JOINS_OF_SUBQUERY if n.get("class") == "SUBQUERY" else 0
        copied += n.get("materialized") == "CTE_MATERIALIZE_NEVER"
        selects += n.get("type") == "SELECT_NODE"
    if joins * (joins + 1) ** copied > JOINS_MAX:
        title = f"an interactive query has at most {JOINS_MAX} joins, where a sub-query in an expression counts as {JOINS_OF_SUBQUERY}"
        help_ = "leave NOT MATERIALIZED out" if copied else "make a view or a table of some of them in the project"
        raise QueryError(title, code=TOO_LONG, help=help_)
    if selects > SELECTS_MAX:
        title = f"an interactive query has at most {SELECTS_MAX:,} SELECTs"
        raise QueryError(title, code=TOO_LONG, help="list rows with VALUES, or split the query")


def objects_of(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from objects_of(part)


def _is_short(root: dict[str, Any]) -> bool:
    """A description, or what a LIMIT makes short."""
    if (root.get("from_table") or {}).get("type") == "SHOW_REF":
        return True
    for m in root.get("modifiers", ()):
        if m.get("type") == "LIMIT_MODIFIER" and m.get("limit_type") == "ROW_COUNT":
            counts = [_whole_number(m.get(part)) for part in ("limit", "offset") if m.get(part) is not None]
            return bool(counts) and m.get("limit") is not None and all(n <= SHORT_ROWS_MAX for n in counts)
    return False


def _enough(root: dict[str, Any]) -> int | None:
    """The n of `SELECT columns FROM one relation LIMIT n`; None for queries that read other rows before they know these."""
    source = root.get("from_table") or {}
    plain = root.get("type") == "SELECT_NODE" and source.get("type") == "BASE_TABLE" and _is_short(root)
    if not plain or any(root.get(part) for part in _LOOKING) or source.get("sample") is not None:
        return None
    modifiers = root.get("modifiers", ())
    if root.get("aggregate_handling", _STANDARD) != _STANDARD:  # GROUP BY ALL
        return None
    if len(modifiers) != 1 or (root.get("cte_map") or {}).get("map"):
        return None
    if any(n.get("class", "COLUMN_REF") not in _OF_ONE_ROW for n in objects_of(root.get("select_list"))):
        return None
    counts = [_whole_number(modifiers[0].get(part)) for part in ("limit", "offset") if modifiers[0].get(part)]
    return int(sum(counts))


def _whole_number(e: Any) -> float:
    """A constant that is one; infinity for anything else."""
    literal = e.get("literal") if e.get("type") == "VALUE_CONSTANT" else None
    return int(literal["text"]) if literal is not None and literal["kind"] == "INTEGER" else math.inf


def _columns(nodes: list[dict[str, Any]], mentions: list[dict[str, Any]]) -> frozenset[str] | None:
    """Every text in the tree that could name a column; None where all columns are meant."""
    if any(n.get("type") == "STAR" or n.get("ref_type") == "NATURAL" for n in nodes):
        return None
    whole = {str(m.get(k, "")).casefold() for m in mentions for k in ("table_name", "alias")}
    words: set[str] = set()
    for n in nodes:
        for key, value in n.items():
            parts = value if isinstance(value, list) else [value]
            words.update(p.casefold() for p in parts if isinstance(p, str) and key not in ("table_name", "class"))
        names = n.get("column_names")
        if isinstance(names, list) and len(names) == 1 and str(names[0]).casefold() in whole:
            return None  # a whole row as one value
    return frozenset(words)


def _conditions(nodes: list[dict[str, Any]], mentions: list[dict[str, Any]]) -> dict[str, tuple[Condition, ...]]:
    found = {}
    for node in nodes:
        source = node.get("from_table")
        if node.get("type") != "SELECT_NODE" or not isinstance(source, dict) or source.get("type") != "BASE_TABLE":
            continue
        name = str(source["table_name"]).casefold()
        if sum(str(m["table_name"]).casefold() == name for m in mentions) == 1 and not source.get("column_name_alias"):
            known = (name, str(source.get("alias") or name).casefold())
            found[name] = tuple(_conjuncts(node.get("where_clause"), known))
    return found


def _conjuncts(e: dict[str, Any] | None, relation: tuple[str, ...]) -> Iterator[Condition]:
    """Conditions on single columns that all must hold."""
    if e is None:
        return
    kind = e.get("type", "")
    if kind == "CONJUNCTION_AND":
        for child in e["children"]:
            yield from _conjuncts(child, relation)
    elif kind in _COMPARISONS:
        operator = _COMPARISONS[kind]
        for column, value, op in ((e["left"], e["right"], operator), (e["right"], e["left"], _FLIPPED[operator])):
            yield from _condition(column, op, [value], relation)
    elif kind == "COMPARE_IN":
        yield from _condition(e["children"][0], "=", e["children"][1:], relation)
    elif kind == "COMPARE_BETWEEN":
        yield from _condition(e["input"], ">=", [e["lower"]], relation)
        yield from _condition(e["input"], "<=", [e["upper"]], relation)


def _condition(
    column: dict[str, Any], operator: str, values: list[dict[str, Any]], relation: tuple[str, ...]
) -> Iterator[Condition]:
    names = column.get("column_names")
    if not names or len(names) > 2 or (len(names) == 2 and str(names[0]).casefold() not in relation):
        return
    if all(v.get("type") == "VALUE_CONSTANT" and "literal" in v for v in values):
        literals = tuple(Literal(v["literal"]["kind"], v["literal"]["text"]) for v in values)
        yield Condition(str(names[-1]).casefold(), operator, literals)
