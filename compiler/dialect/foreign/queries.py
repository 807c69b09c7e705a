"""Rules for SELECT, its relations and its joins."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.building import call
from flowql.compiler.dialect.foreign.dialects import identifier
from flowql.compiler.dialect.foreign.json_values import json_path
from flowql.compiler.dialect.foreign.kinds import sources
from flowql.compiler.dialect.foreign.qualify import qualified
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

_SELECT = (
    "with_",
    "expressions",
    "distinct",
    "from_",
    "joins",
    "laterals",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "windows",
    "qualify",
    "operation_modifiers",
)
_JOIN_KINDS = ("", "INNER", "CROSS", "OUTER")
_STAR_HELP = "write the columns, or put the CREATE TABLE of the relation into the files"


def select(tr: Translation, node: Node) -> Node:
    given = {n: v for n, v in node.args.items() if v not in (None, False, [])}
    for name in given:
        if name not in _SELECT:
            refuse(node, f"{_clause(name)} of SELECT", f"no translation from {tr.dialect} is known")
    if any(
        isinstance(e, exp.Ordered) and e.name.upper() == "ALL" and isinstance(e.this, exp.Var)
        for e in (given["order"].expressions if "order" in given else ())
    ):
        refuse(node, "ORDER BY ALL", f"no translation from {tr.dialect} is known", "write the columns")
    if tr.dialect == "bigquery":
        _refuse_hidden_columns(node)
    made = exp.Select(
        **{
            name: tr.argument(value)
            for name, value in given.items()
            if name not in ("expressions", "joins", "laterals", "group", "qualify")
        }
    )
    made.set("expressions", _items(tr, node))
    made.set("group", _group(tr, node))
    made.set(
        "joins", [*tr.argument(given.get("joins", [])), *(_lateral_join(tr, v) for v in given.get("laterals", ()))]
    )
    made.comments = node.comments
    return qualified(tr, node, made) if "qualify" in given else made


def _clause(name: str) -> str:
    return {"sample": "TABLESAMPLE", "pivots": "PIVOT", "connect": "CONNECT BY", "kind": "AS STRUCT", "locks": "FOR UPDATE", "sort": "SORT BY",
        "distribute": "DISTRIBUTE BY", "cluster": "CLUSTER BY", "into": "INTO"}.get(name, name.strip("_").upper())  # fmt: skip


def _refuse_hidden_columns(node: Node) -> None:
    """GROUP BY a name that is an alias of an expression and perhaps a column: BigQuery takes the alias, FlowQL the column."""
    aliases = {
        e.alias.lower() for e in node.expressions if isinstance(e, exp.Alias) and not isinstance(e.this, exp.Column)
    }
    used = {c.name.lower() for e in node.expressions for c in e.find_all(exp.Column)}
    for e in node.args["group"].expressions if node.args.get("group") else ():
        if isinstance(e, exp.Column) and not e.table and e.name.lower() in aliases & used:
            refuse(
                e,
                f"GROUP BY {e.name}",
                "it is an alias and a column: BigQuery groups by the alias, FlowQL by the column",
                "give the alias another name",
            )


def _items(tr: Translation, node: Node) -> list[Node]:
    """The select list; `* EXCEPT (a)` and `* REPLACE (x AS a)` become columns."""
    made: list[Node] = []
    for item in node.expressions:
        star = (
            item
            if isinstance(item, exp.Star)
            else item.this
            if isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            else None
        )
        if star is not None and any(star.args.values()):
            made += _columns_of_star(tr, node, item, star)
        else:
            made.append(tr.noted(item))
    return made


def _columns_of_star(tr: Translation, node: Node, item: Node, star: Node) -> list[Node]:
    if star.args.get("rename") or star.args.get("ilike"):
        refuse(item, "* with RENAME or ILIKE", f"no translation from {tr.dialect} is known", _STAR_HELP)
    relations = [
        s for s in sources(node) if not isinstance(item, exp.Column) or s.alias_or_name.lower() == item.table.lower()
    ]
    known = tr.kinds.relation(relations[0]) if len(relations) == 1 else None
    if known is None or any(j.args.get("using") or j.args.get("method") for j in node.args.get("joins") or ()):
        refuse(item, "* EXCEPT", "the columns of its relations are not known", _STAR_HELP)
    without = {c.name.lower() for c in star.args.get("except_") or ()}
    replaced = {r.alias.lower(): r for r in star.args.get("replace") or ()}
    table = tr.name(exp.to_identifier(relations[0].alias_or_name)) if isinstance(item, exp.Column) else None
    return [
        tr(replaced[name])
        if name in replaced
        else exp.Column(this=identifier(name), table=table.copy() if table is not None else None)
        for name in known
        if name not in without
    ]


def _group(tr: Translation, node: Node) -> Node:
    group = node.args.get("group")
    if group is None:
        return None
    if not group.args.get("all"):
        return tr(group)
    keys = [
        e.unalias()
        for e in node.expressions
        if not any(not isinstance(a.parent, exp.Window) for a in e.find_all(exp.AggFunc))
    ]
    if any(isinstance(k, exp.Star) or k.find(exp.Star) for k in keys):
        refuse(group, "GROUP BY ALL with *", f"no translation from {tr.dialect} is known", "write the columns")
    return exp.Group(expressions=[tr(k) for k in keys if not isinstance(k, exp.Literal)])


def table(tr: Translation, node: Node) -> Node:
    """A table, without its database: a project is one name space."""
    for name, value in node.args.items():
        if value and name not in ("this", "alias", "db", "catalog", "joins", "ordinality"):
            refuse(node, f"{_clause(name)} of a table", f"no translation from {tr.dialect} is known")
    if node.args.get("ordinality") and not tr.as_postgres:
        refuse(node, "WITH ORDINALITY", f"no translation from {tr.dialect} is known")
    return exp.Table(
        this=tr.name(node.this) if isinstance(node.this, exp.Identifier) else _windowed(tr, node.this),
        alias=tr.argument(node.args.get("alias")),
        joins=tr.argument(node.args.get("joins") or []),
        ordinality=node.args.get("ordinality"),
    )


def _windowed(tr: Translation, node: Node) -> Node:
    """A function in FROM."""
    return tr(node)


def join(tr: Translation, node: Node) -> Node:
    kind, method = node.text("kind").upper(), node.text("method").upper()
    if kind not in _JOIN_KINDS or (
        method and method not in ("NATURAL",) and not (method == "ASOF" and tr.dialect == "duckdb")
    ):
        construct = " ".join(w for w in (method, node.text("side").upper(), kind, "JOIN") if w)
        help = (
            "write  WHERE [NOT] EXISTS (SELECT FROM ... WHERE ...)"
            if kind in ("SEMI", "ANTI")
            else "write it as one of the joins of standard SQL"
        )
        refuse(node, construct, "FlowQL has no such join", help)
    if isinstance(node.this, exp.Lateral):
        return _lateral_join(tr, node.this)
    for name, value in node.args.items():
        if value and name not in ("this", "on", "side", "kind", "using", "method"):
            refuse(node, f"{name.strip('_').upper()} of a join", f"no translation from {tr.dialect} is known")
    return exp.Join(**{n: tr.argument(v) for n, v in node.args.items() if v})


def _lateral_join(tr: Translation, node: Node) -> Node:
    """LATERAL VIEW explode(a), LATERAL FLATTEN(input => v:a), and LATERAL of a query."""
    alias, inner = node.args.get("alias"), node.this
    if isinstance(inner, exp.Subquery):
        return exp.Join(this=exp.Lateral(this=tr(inner), alias=tr.argument(alias)), kind="CROSS")
    if isinstance(inner, exp.Explode) and tr.dialect == "spark":
        return _exploded(tr, node)
    if isinstance(inner, exp.Explode) and tr.dialect == "snowflake":
        return _flattened(tr, node)
    return refuse(
        node, "LATERAL of a function", f"no translation from {tr.dialect} is known", "write UNNEST(array) in FROM"
    )


def _exploded(tr: Translation, node: Node) -> Node:
    alias = node.args.get("alias")
    names = alias.args.get("columns") or [] if alias is not None else []
    if len(names) != 1 or tr.kinds.of(node.this.this) not in ("array", ""):
        refuse(node, "explode of a map", "UNNEST takes arrays", "write the map as an array of its entries")
    unnested = exp.Unnest(
        expressions=[tr(node.this.this)], alias=exp.TableAlias(this=tr.name(alias.this), columns=[tr.name(names[0])])
    )
    outer = {"side": "LEFT", "on": exp.true()} if node.args.get("outer") else {"kind": "CROSS"}
    return exp.Join(this=unnested, **outer)


def _flattened(tr: Translation, node: Node) -> Node:
    """FLATTEN of an array of JSON, of whose columns the query reads VALUE alone."""
    kwarg = node.this.this
    alias = node.args["alias"].name if node.args.get("alias") is not None else ""
    select = node.find_ancestor(exp.Select)
    read = {c.name.upper() for c in select.find_all(exp.Column) if c.table.upper() == alias.upper()}
    if (
        not isinstance(kwarg, exp.Kwarg)
        or kwarg.name.upper() != "INPUT"
        or node.this.expressions
        or not alias
        or not read <= {"VALUE"}
    ):
        refuse(
            node,
            "FLATTEN with options, or with columns other than VALUE",
            f"no translation from {tr.dialect} is known",
            "write JSONB_ARRAY_ELEMENTS(v) AS f(value)",
        )
    source = kwarg.expression
    if isinstance(source, exp.Column) and tr.kinds.of(source) == "array":
        refuse(node, "FLATTEN of an ARRAY", "its elements have a type of their own here", "write UNNEST(a) AS f(value)")
    given = json_path(tr, source, text=False) if isinstance(source, exp.JSONExtract) else tr(source)
    function = call("JSONB_ARRAY_ELEMENTS", given)
    named = exp.TableAlias(this=identifier(alias.lower()), columns=[identifier("value")])
    return exp.Join(this=exp.Table(this=function, alias=named), kind="CROSS")


def unnest(tr: Translation, node: Node) -> Node:
    alias = node.args.get("alias")
    if node.args.get("offset") and not tr.as_postgres:
        refuse(
            node,
            "UNNEST WITH OFFSET or ORDINALITY",
            "places count from 0 or 1 in different dialects",
            "write UNNEST(a) WITH ORDINALITY AS u(x, place)",
        )
    if (
        tr.dialect == "bigquery"
        and alias is not None
        and alias.this is None
        and len(alias.args.get("columns") or ()) == 1
    ):
        name = tr.name(alias.args["columns"][0])
        return exp.Unnest(
            expressions=tr.argument(node.expressions), alias=exp.TableAlias(this=name, columns=[name.copy()])
        )
    if not tr.as_postgres and any(tr.kinds.of(e) in ("map", "json") for e in node.expressions):
        refuse(node, "UNNEST of a map", "UNNEST takes arrays", "write the map as an array of its entries")
    return exp.Unnest(
        expressions=tr.argument(node.expressions), alias=tr.argument(alias), offset=node.args.get("offset")
    )


def lateral(tr: Translation, node: Node) -> Node:
    if not isinstance(node.this, exp.Subquery) and not tr.as_postgres:
        refuse(
            node, "LATERAL of a function", f"no translation from {tr.dialect} is known", "write UNNEST(array) in FROM"
        )
    return exp.Lateral(this=tr(node.this), alias=tr.argument(node.args.get("alias")))


QUERIES: dict[type, Rule] = {
    exp.Select: select, exp.Table: table, exp.Join: join, exp.Unnest: unnest, exp.Lateral: lateral,
}  # fmt: skip
