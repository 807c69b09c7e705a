"""Joins and set operations of other SQL dialects that have no operator: they are refused by their name.

`a ANTI JOIN b` must not be read as an inner join of `a`, called ANTI, with `b`. So words that begin such a construct are no
aliases without AS. ksqlDB reserves few of these words, so a word in front of JOIN is an alias if the statement uses it as one (`anti.id`).
"""

from __future__ import annotations

from flowql.compiler.dialect.cursor import Cursor
from flowql.compiler.dialect.words import JOIN_KINDS, RESERVED

_DIRECTIONS = ("INNER", "LEFT", "RIGHT", "FULL", "OUTER")
_SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
_AS_JOINS = {
    "ANTI": "write  LEFT JOIN ... ON ...  with  WHERE other.key IS NULL",
    "CROSS": "join on a key",
    "LATERAL": "call a table function in the select list, or join on a key",
    "NATURAL": "write the equal columns:  JOIN other ON this.key = other.key",
    "SEMI": "write  JOIN other ON this.key = other.key  where other is a table with that key",
}
# Words that follow a source and begin a clause: (first word, second word or operator, what it is, help).
_CLAUSES = (
    ("FOR", "SYSTEM_TIME", "FOR SYSTEM_TIME AS OF (a temporal join)", ""),
    ("USING", "(", "JOIN ... USING", "write  ON this.key = other.key"),
    ("CROSS", "APPLY", "CROSS APPLY", "call a table function in the select list"),
    ("TABLESAMPLE", "", "TABLESAMPLE", ""),
    ("MATCH_RECOGNIZE", "(", "MATCH_RECOGNIZE", ""),
    ("PIVOT", "(", "PIVOT", ""),
    ("UNPIVOT", "(", "UNPIVOT", ""),
    ("QUALIFY", "", "QUALIFY", ""),
)
_QUERY_STARTS = ("SELECT", "ALL", "DISTINCT", "VALUES", "TABLE", "WITH")


def at_no_alias(cur: Cursor) -> bool:
    """Whether the word here begins a construct, so that it is not an alias of the source before it."""
    return _join_words(cur) > 0 or _at_set_operation(cur) or _clause(cur) is not None


def refuse_join(cur: Cursor) -> None:
    """Refuse a kind of join that has no operator: where a join could begin, or behind LEFT, RIGHT or FULL."""
    count = _join_words(cur)
    if not count:
        return
    words = [cur.peek(i) for i in range(count)]
    named = " ".join(w.upper for w in words)
    if cur.peek(count).upper == "JOIN":
        named += " JOIN"
    helps = [_AS_JOINS[w.upper] for w in words if w.upper in _AS_JOINS]
    alias = f"; as the name of a source write  AS {words[0].text}" if words[0].upper not in _DIRECTIONS else ""
    cur.unsupported(
        named,
        at=cur.span_between(cur.span_of(words[0]), cur.span_of(words[-1])),
        help=f"{(helps or ['join on a key'])[0]}{alias}",
    )


def refuse_lateral(cur: Cursor) -> None:
    """Refuse LATERAL where a source is expected."""
    if cur.tok.upper == "LATERAL" and cur.after.op == "(":
        cur.unsupported("LATERAL", help=_AS_JOINS["LATERAL"])


def refuse_set_operation(cur: Cursor) -> None:
    """Refuse UNION, INTERSECT, EXCEPT and MINUS behind a query."""
    if not _at_set_operation(cur):
        return
    named = cur.tok.upper
    if cur.after.upper in ("ALL", "DISTINCT"):
        named += f" {cur.after.upper}"
    cur.unsupported(named, help="INSERT INTO a stream from each query" if named.startswith("UNION") else "")


def refuse_clause(cur: Cursor) -> None:
    """Refuse a clause of other dialects that follows a source."""
    found = _clause(cur)
    if found is not None:
        cur.unsupported(found[0], help=found[1])


def _join_words(cur: Cursor) -> int:
    """How many words here name a kind of join that has no operator; 0 for none."""
    count = 0
    other = False
    while cur.peek(count).upper in (*JOIN_KINDS, *_DIRECTIONS):
        other = other or cur.peek(count).upper in JOIN_KINDS
        count += 1
    if not other or not count:
        return 0
    if cur.peek(count).upper != "JOIN" or _is_named(cur):
        return 0
    return count


def _is_named(cur: Cursor) -> bool:
    """Whether the word here is an alias after all: ksqlDB takes it as one, and the statement says so."""
    return cur.tok.upper != "CROSS" and cur.is_qualifier(cur.tok)


def _at_set_operation(cur: Cursor) -> bool:
    if cur.tok.upper == "UNION":
        return True
    return cur.tok.upper in _SET_OPERATIONS and (cur.after.upper in _QUERY_STARTS or cur.after.op == "(")


def _clause(cur: Cursor) -> tuple[str, str] | None:
    for first, second, named, help in _CLAUSES:
        if cur.tok.upper != first:
            continue
        follows = _at_either(cur, second) if second else not _ends_source(cur)
        if follows:
            return named, help
    return None


def _at_either(cur: Cursor, second: str) -> bool:
    return cur.after.op == second or cur.after.upper == second


def _ends_source(cur: Cursor) -> bool:
    """Whether what stands behind the word here can follow an alias, so that the word is one."""
    after = cur.after
    if after.kind == "word":
        return after.upper in RESERVED or after.upper in ("PARTITION", "EMIT")
    return after.kind == "end" or after.op in (";", ")", ",")


def refuse_columns(cur: Cursor, *, has_columns: bool, read_only: bool) -> None:
    """CREATE ... AS with a list of columns, or with SOURCE. Raises ParseError."""
    if has_columns:
        cur.fail(
            "FQ1003",
            "columns are not listed where a query follows",
            label="the query names its columns",
            help="remove the list of columns, and name them in the query: SELECT x AS name",
        )
    if read_only:
        cur.fail("FQ1003", "SOURCE is only for streams and tables over a topic", help="remove SOURCE")
