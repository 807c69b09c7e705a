"""Queries and relations of the tree as text: `parse(to_sql(tree)) == tree`."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.dialect.generator import window_text, within_text
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import OTHER
from flowql.compiler.dialect.standard.write_expressions import Writer, dotted, quoted, write_type

_PRECEDENCE = {"union": 1, "except": 1, "intersect": 2}


def query_sql(query: t.Query) -> str:
    """A query on one line."""
    parts: list[str] = []
    if query.with_:
        parts.append(with_sql(query.with_, recursive=query.recursive))
    parts.append(_body(query.body))
    if query.order_by:
        parts.append(f"ORDER BY {WRITER.order_items(query.order_by)}")
    if query.limit is not None and not query.with_ties:
        parts.append(f"LIMIT {WRITER.expr(query.limit)}")
    if query.offset is not None:
        parts.append(f"OFFSET {WRITER.expr(query.offset)}")
    if query.limit is not None and query.with_ties:
        parts.append(f"FETCH FIRST {WRITER.expr(query.limit, OTHER)} ROWS WITH TIES")
    if query.emit:
        parts.append(f"EMIT {query.emit.upper()}")
    return " ".join(parts)


def with_sql(tables: Sequence[t.With], *, recursive: bool) -> str:
    """The tables of WITH; empty without any."""
    return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(map(_common_table, tables))}" if tables else ""


def _common_table(table: t.With) -> str:
    columns = names(table.columns)
    kinds = {None: "", True: "MATERIALIZED ", False: "NOT MATERIALIZED "}
    return f"{quoted(table.name)}{columns} AS {kinds[table.materialized]}({query_sql(table.query)})"


def names(columns: tuple[str, ...]) -> str:
    """` (a, b)`, or nothing."""
    return f" ({', '.join(map(quoted, columns))})" if columns else ""


def _body(body: t.Body, least: int = 0) -> str:
    if isinstance(body, t.Query):
        return f"({query_sql(body)})"
    if isinstance(body, t.Values):
        return "VALUES " + rows_sql(body.rows)
    if isinstance(body, t.Select):
        return _select(body)
    level = _PRECEDENCE[body.op]
    words = body.op.upper() + (" ALL" if body.all else "")
    if body.corresponding:
        words += " CORRESPONDING" + (f" BY{names(body.by)}" if body.by else "")
    made = f"{_body(body.left, level)} {words} {_body(body.right, level + 1)}"
    return made if level >= least else f"({made})"


def rows_sql(rows: tuple[tuple[t.Expr, ...], ...]) -> str:
    """The text after VALUES."""
    return ", ".join(f"({WRITER.exprs(row)})" for row in rows)


def _select(select: t.Select) -> str:
    parts = ["SELECT"]
    if select.distinct:
        parts.append(f"DISTINCT ON ({WRITER.exprs(select.distinct_on)})" if select.distinct_on else "DISTINCT")
    if select.items:
        parts.append(items_sql(select.items))
    if select.source is not None:
        parts.append(f"FROM {relation_sql(select.source)}")
    if select.time_window is not None:
        parts.append(window_text(select.time_window))
    if select.where is not None:
        parts.append(f"WHERE {WRITER.expr(select.where)}")
    if select.group_by:
        parts.append(f"GROUP BY {', '.join(map(_group, select.group_by))}")
    if select.partition_by:
        parts.append(f"PARTITION BY {WRITER.exprs(select.partition_by)}")
    if select.having is not None:
        parts.append(f"HAVING {WRITER.expr(select.having)}")
    if select.windows:
        windows = ", ".join(f"{quoted(w.name)} AS {WRITER.window(w.spec)}" for w in select.windows)
        parts.append(f"WINDOW {windows}")
    if select.qualify is not None:
        parts.append(f"QUALIFY ({WRITER.expr(select.qualify)})")
    return " ".join(parts)


def items_sql(items: tuple[t.Item, ...]) -> str:
    """A select list."""
    return ", ".join(WRITER.expr(i.expr) + (f" AS {quoted(i.alias)}" if i.alias is not None else "") for i in items)


def _group(element: t.GroupElement) -> str:
    if not isinstance(element, t.Grouping):
        return WRITER.expr(element)
    words = {"set": "", "sets": "GROUPING SETS ", "rollup": "ROLLUP ", "cube": "CUBE "}
    return f"{words[element.kind]}({', '.join(map(_group, element.elements))})"


def relation_sql(relation: t.Relation) -> str:
    """A relation with its joins."""
    match relation:
        case t.Join():
            return _join(relation)
        case t.Table():
            as_of = f" FOR SYSTEM_TIME AS OF {WRITER.expr(relation.as_of)}" if relation.as_of is not None else ""
            return dotted(relation.name) + as_of + _alias(relation.alias)
        case t.Derived():
            return f"{_lateral(relation)}({query_sql(relation.query)}){_alias(relation.alias)}"
        case t.TableFunction():
            call = WRITER.call(relation.call)
            ordinality = " WITH ORDINALITY" if relation.ordinality else ""
            wrapped = f"TABLE({call})" if relation.wrapped else call
            return f"{_lateral(relation)}{wrapped}{ordinality}{_alias(relation.alias)}"


def _lateral(relation: t.Derived | t.TableFunction) -> str:
    return "LATERAL " if relation.lateral else ""


def _alias(alias: t.Alias | None) -> str:
    if alias is None:
        return ""
    if alias.types:
        typed = [f"{quoted(c)} {write_type(of)}" for c, of in zip(alias.columns, alias.types, strict=True)]
        return f" AS {quoted(alias.name)} ({', '.join(typed)})"
    return f" AS {quoted(alias.name)}{names(alias.columns)}"


def _join(join: t.Join) -> str:
    left, right = relation_sql(join.left), relation_sql(join.right)
    if join.kind == "comma":
        return f"{left}, {right}"
    if isinstance(join.right, t.Join):
        right = f"({right})"
    words = ["NATURAL"] if join.natural else []
    words += [join.variant] if join.variant else []
    words += [join.kind.upper(), "JOIN"]
    within = f" {within_text(join.within)}" if join.within is not None else ""
    condition = f" ON {WRITER.expr(join.on)}" if join.on is not None else ""
    if join.using:
        condition = f" USING{names(join.using)}"
    return f"{left} {' '.join(words)} {right}{within}{condition}"


WRITER = Writer(query_sql)
