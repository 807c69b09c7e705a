"""Functions of the project in interactive queries: how DuckDB is to know them.

DuckDB takes scalar functions from Python, and neither aggregates nor table functions. So macros stand for these: of an aggregate, the call of a
scalar function over the list of the rows of a group; of a table function, `unnest` over its list. DuckDB allows neither DISTINCT nor ORDER BY nor FILTER
in the call of a macro, so such calls are written with the list that they mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from flowql.compiler.functions.user_vectorized import as_declared
from flowql.compiler.plan.types import Kind
from flowql.query.errors import INVALID, QueryError, place_of_word
from flowql.query.statement import EXPLAIN, Statement, objects_of
from flowql.runtime.functions.interactive import InteractiveFunction

_EXACT = (
    'DECIMAL|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|"NULL"'  # types of DuckDB that are or become a DECIMAL without loss
)
_SYSTEM = "system.main."  # so that no function of the project hides what macros call
_NOT_EXACT = "flowql: not for "
_PLACE = "flowql_argument_"
_REJECTED = re.compile(_NOT_EXACT + r"(\w+)")


def macros(function: InteractiveFunction) -> Iterator[str]:
    """Statements that make it callable by its name."""
    parameters = [f"a{i}" for i in range(len(function.args))]
    args = _arguments(function, parameters)
    name, key, head = f'"{function.name}"', f'"{function.key}"', f"({', '.join(parameters)})"

    def macro(made: str, body: str) -> str:
        return f"CREATE OR REPLACE TEMP MACRO {made} AS {body}"

    if function.kind == "scalar":
        yield macro(name + head, f"{key}({', '.join(args)})")
    elif function.kind == "table":
        yield macro(name + head, f"unnest({key}({', '.join(args)}))")
        yield macro(name + head, f"TABLE SELECT unnest({key}({', '.join(args)})) AS {name}")
    else:
        yield macro(name + head, f"{key}({_SYSTEM}list({_row(args)}))")


def _arguments(function: InteractiveFunction, values: Sequence[str]) -> list[str]:
    """SQL of arguments as its columns have them."""
    declared = as_declared(values, function.args)
    made = []
    for i, (value, t) in enumerate(zip(declared, function.args, strict=True)):
        if i in function.decimals:
            value = _exact(value, function.name)
        elif t.kind is Kind.TIMESTAMP:
            value = _moment(value, function.name)
        made.append(value)
    return made or ["true"]


def _moment(argument: str, name: str) -> str:
    """A TIMESTAMP in milliseconds, which DuckDB makes of no other one by itself; it would cut one with smaller parts."""
    cut = f"CAST({argument} AS TIMESTAMP_MS)"
    finer = f"CAST({cut} AS TIMESTAMP) <> CAST({argument} AS TIMESTAMP)"
    told = f"{name} takes a TIMESTAMP in milliseconds: write  CAST(... AS TIMESTAMP(3))"
    made = f"CASE WHEN {finer} THEN {_SYSTEM}error('{told}') ELSE {cut} END"
    is_moment = f"{_SYSTEM}regexp_matches({_SYSTEM}typeof({argument}), '^(TIMESTAMP|DATE|\"NULL\")')"
    return f"CASE WHEN {is_moment} THEN {made} ELSE {_SYSTEM}error('{_NOT_EXACT}{name}') END"


def _row(values: Sequence[str]) -> str:
    return f"{_SYSTEM}struct_pack({', '.join(f'a{i} := {v}' for i, v in enumerate(values))})"


def _exact(argument: str, name: str) -> str:
    """The text of a DECIMAL of any digits."""
    is_exact = f"{_SYSTEM}regexp_matches({_SYSTEM}typeof({argument}), '^({_EXACT})')"
    return f"CASE WHEN {is_exact} THEN CAST({argument} AS VARCHAR) ELSE {_SYSTEM}error('{_NOT_EXACT}{name}') END"


def with_aggregates(
    statement: Statement, functions: Sequence[InteractiveFunction], connection: duckdb.DuckDBPyConnection
) -> Statement:
    """The statement as DuckDB takes it. Raises QueryError for calls of the project's aggregates that cannot be answered."""
    own = {f.name.casefold(): f for f in functions if f.kind == "aggregate"}
    if not own:
        return statement
    explain = EXPLAIN.match(statement.sql)
    head = explain.group() if explain is not None else ""
    sql = statement.sql[len(head) :]
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(row[0])
    for node in objects_of(tree):
        _check(node, own, statement.sql)
    changed = False
    for node in list(objects_of(tree)):
        for item in node.get("select_list") or ():
            if any(_is_changed(n, own) for n in objects_of(item)) and not item.get("alias"):
                item["alias"] = _text(sql, item)
    for node in list(objects_of(tree)):
        if _is_changed(node, own):
            _write(node, own[_name(node)], connection)
            changed = True
    if not changed:
        return statement
    (row,) = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
    return replace(statement, sql=f"{head} {row[0]}")


def rejected(message: str, functions: Sequence[InteractiveFunction], sql: str) -> QueryError | None:
    """DuckDB's error about arguments of the project's functions, with the names that the user knows."""
    by_name = {f.name: f for f in functions}
    found = _REJECTED.search(message)
    function = by_name.get(found[1]) if found else next((f for f in functions if _concerns(message, f)), None)
    if function is not None:
        return _mistaken(function, sql)
    table = next((f for f in functions if f.kind == "table"), None)
    if table is None or "UNNEST not supported here" not in message:
        return None
    title = f"{table.name} gives several rows: it is called in FROM, and in SELECT"
    help_ = f"SELECT * FROM {table.name}(...) AS x(v) WHERE v = ..."
    return QueryError(title, code=INVALID, help=help_, span=place_of_word(sql, table.name))


def _concerns(message: str, function: InteractiveFunction) -> bool:
    return f"{function.key}(" in message or f"Macro {function.name}() does not support" in message


def _mistaken(function: InteractiveFunction, sql: str) -> QueryError:
    types = ["DECIMAL" if i in function.decimals else str(t) for i, t in enumerate(function.args)]
    title = f"{function.name} does not take these arguments: it takes ({', '.join(types)})"
    return QueryError(title, code=INVALID, help="CAST(... AS ...)", span=place_of_word(sql, function.name))


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("function_name") or "").casefold()


def _check(node: Mapping[str, Any], own: Mapping[str, InteractiveFunction], sql: str) -> None:
    if node.get("class") == "WINDOW" and _name(node) in own:
        name = own[_name(node)].name
        title = f"{name} is an aggregate of the project, which has no OVER"
        help_ = f"join with  SELECT ..., {name}(...) FROM ... GROUP BY ..."
        raise QueryError(title, code=INVALID, help=help_, span=place_of_word(sql, name))
    if node.get("type") == "PIVOT":
        calls = (n for n in objects_of(node.get("aggregates")) if _name(n) in own)
        if call := next(calls, None):
            name = own[_name(call)].name
            title = f"{name} is an aggregate of the project, which PIVOT does not call"
            help_ = f"{name}(...) FILTER (WHERE ...) for each column"
            raise QueryError(title, code=INVALID, help=help_, span=place_of_word(sql, name))
    if _is_changed(node, own) and len(node["arguments"]) != len(own[_name(node)].args):
        raise _mistaken(own[_name(node)], sql)
    if _is_changed(node, own) and node["distinct"] and node["order_bys"]["orders"]:
        name = own[_name(node)].name
        title = f"{name} has DISTINCT and ORDER BY, and is an aggregate of the project"
        help_ = "leave ORDER BY out: different values are in their order"
        raise QueryError(title, code=INVALID, help=help_, span=place_of_word(sql, name))


def _is_changed(node: Mapping[str, Any], own: Mapping[str, InteractiveFunction]) -> bool:
    """Whether it is a call that a macro cannot stand for."""
    if node.get("class") != "FUNCTION" or _name(node) not in own:
        return False
    return bool(node.get("distinct") or node.get("filter") or (node.get("order_bys") or {}).get("orders"))


def _write(node: dict[str, Any], function: InteractiveFunction, connection: duckdb.DuckDBPyConnection) -> None:
    """`F(DISTINCT a) FILTER (...)` -> the value of a list that has these."""
    places = [f"{_PLACE}{i}" for i in range(len(function.args))]
    texts = _arguments(function, places)
    if node["distinct"]:
        rows = f"{_SYSTEM}list(DISTINCT {_row(places)})"
        rows = f"{_SYSTEM}list_sort({rows}, 'ASC', 'NULLS LAST')"
        if function.decimals:
            fields = _arguments(function, [f"x.a{i}" for i in range(len(places))])
            rows = f"{_SYSTEM}list_transform({rows}, lambda x: {_row(fields)})"
    else:
        rows = f"{_SYSTEM}list({_row(texts)})"
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [f'SELECT "{function.key}"({rows})']).fetchall()
    made = json.loads(row[0])["statements"][0]["node"]["select_list"][0]
    listed = next(n for n in objects_of(made) if n.get("function_name") == "list")
    listed["filter"] = node["filter"]
    if node["order_bys"]["orders"]:
        listed["order_bys"] = node["order_bys"]
    values = {p: a["expression"] for p, a in zip(places, node["arguments"], strict=True)}
    made = _filled(made, values)
    made["alias"] = node["alias"]
    node.clear()
    node.update(made)


def _filled(tree: Any, values: Mapping[str, Any]) -> Any:
    """With values in place of columns of their names."""
    if isinstance(tree, list):
        return [_filled(part, values) for part in tree]
    if not isinstance(tree, dict):
        return tree
    names = tree.get("column_names")
    if tree.get("class") == "COLUMN_REF" and names and names[0] in values:
        return values[names[0]]
    return {key: _filled(part, values) for key, part in tree.items()}


def _text(sql: str, node: Mapping[str, Any]) -> str:
    start, length = int(node["query_location"]), int(node["query_location_length"])
    return sql.encode()[start : start + length].decode(errors="replace")
