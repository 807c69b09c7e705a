"""From text to syntax trees: the entry points.

`parse_statements` reads a SQL file and returns every mistake in it. The others read one fragment each, as the values of
the structured YAML form are, and raise `ParseError` or `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Literal, TypeVar

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Ast, JoinClause, Query, SelectItem, Statement, TableRef, TypeRef, WindowClause
from flowql.compiler.dialect.cursor import Cursor, Positions
from flowql.compiler.dialect.expressions import parse_expr
from flowql.compiler.dialect.limits import check_tokens
from flowql.compiler.dialect.queries import parse_items, parse_join_clause, parse_select, parse_source
from flowql.compiler.dialect.standard import parser as standard
from flowql.compiler.dialect.statements import parse_statement
from flowql.compiler.dialect.time_windows import parse_window_clause
from flowql.compiler.dialect.tokens import fragment, read_statements, split_statements, tokenize
from flowql.compiler.dialect.type_refs import parse_type_ref

_WORDS_BEFORE_KIND_MAX = 4  # CREATE OR REPLACE SOURCE TABLE, CREATE TEMPORARY RECURSIVE VIEW
T = TypeVar("T")
DialectName = Literal["ksql", "standard"]


def parse_statements(
    source: SourceText,
    dialect: DialectName = "ksql",
    variables: MutableMapping[str, str] | None = None,
) -> tuple[list[Statement], list[Diagnostic]]:
    """All statements that could be read, and every mistake; after one, reading goes on behind the next semicolon.

    `variables` are the values of `${name}`; DEFINE and UNDEFINE change the mapping, so that a caller who parses
    statement by statement passes the same one each time.

    >>> statements, mistakes = parse_statements(SourceText("a.sql", "DROP STREAM s; DROP STREM t;"))
    >>> statements[0].name, mistakes[0].title
    ('S', 'expected STREAM, TABLE or TYPE after DROP, found `STREM`')
    """
    if dialect == "standard":
        return standard.parse_trees(source, variables)
    known = {} if variables is None else variables
    return read_statements(
        source, known, lambda body, at: parse_statement(Cursor(source, body, at), known), check_size=check_tokens
    )


def declared_names(source: SourceText, dialect: DialectName = "ksql") -> frozenset[str]:
    """Names that the CREATE statements of a text declare, also those of statements with a mistake in them.

    >>> sorted(declared_names(SourceText("a.sql", "CREATE STREAM s (a INT, ; CREATE OR REPLACE TABLE t AS")))
    ['S', 'T']
    """
    positions = Positions(source)
    if dialect == "standard":
        cursors: list[Cursor] = [*standard.readers(source, positions)]
    else:
        cursors = [Cursor(source, body, positions) for body in split_statements(tokenize(source, positions)[0])]
    return frozenset(name for cur in cursors if (name := _declared(cur)) is not None)


def _declared(cur: Cursor) -> str | None:
    """The name behind CREATE ... STREAM, TABLE or VIEW, without its schema."""
    if not cur.accept_words("CREATE"):
        return None
    for _ in range(_WORDS_BEFORE_KIND_MAX):
        if any(cur.accept_words(kind) for kind in ("STREAM", "TABLE", "VIEW")):
            break
        cur.next()
    else:
        return None
    cur.accept_words("IF", "NOT", "EXISTS")
    name = cur.next()
    while cur.accept_op("."):
        name = cur.next()
    return name.name if name.kind in ("word", "quoted") else None


def parse_expression(source: SourceText, dialect: DialectName = "ksql") -> Ast:
    """One expression.

    >>> parse_expression(SourceText("", "a + 1")).name
    'add'
    """
    return standard.expression_tree(source) if dialect == "standard" else _fragment(source, parse_expr)


def parse_query(source: SourceText) -> Query:
    """One SELECT of ksqlDB's dialect, with or without a semicolon."""
    return _fragment(source, parse_select)


def parse_window(source: SourceText) -> WindowClause:
    """`TUMBLING (SIZE 1 HOUR)`, with or without the word WINDOW before it; the same in both dialects."""
    return _fragment(source, parse_window_clause)


def parse_type(source: SourceText, dialect: DialectName = "ksql") -> TypeRef:
    """A type such as `MAP<STRING, INT>`."""
    return standard.type_ref(source) if dialect == "standard" else _fragment(source, parse_type_ref)


def parse_table_ref(source: SourceText) -> TableRef:
    """`orders`, `orders o` or `orders AS o`."""
    return _fragment(source, parse_source)


def parse_select_items(source: SourceText) -> tuple[SelectItem, ...]:
    """A select list: `id, amount * 2 AS twice`."""
    return _fragment(source, parse_items)


def parse_join(source: SourceText) -> JoinClause:
    """`LEFT JOIN s WITHIN 1 HOUR ON s.id = o.id`."""
    return _fragment(source, parse_join_clause)


def _fragment(source: SourceText, rule: Callable[[Cursor], T]) -> T:
    body, positions = fragment(source, check_tokens)
    cur = Cursor(source, body, positions)
    result = rule(cur)
    cur.expect_end()
    return result
