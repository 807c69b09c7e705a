"""From text to trees of standard SQL: the entry points."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeVar

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Statement, TypeRef
from flowql.compiler.dialect.cursor import Positions, Tok
from flowql.compiler.dialect.limits import check_tokens
from flowql.compiler.dialect.standard.calls import parse_window
from flowql.compiler.dialect.standard.expressions import OTHER, parse_expr
from flowql.compiler.dialect.standard.queries import parse_items, parse_order_items, parse_query
from flowql.compiler.dialect.standard.reader import Reader, Rules
from flowql.compiler.dialect.standard.refuse import check_depth
from flowql.compiler.dialect.standard.relations import parse_join_alone, parse_relation
from flowql.compiler.dialect.standard.statements import parse_statement, verb_behind_tables
from flowql.compiler.dialect.standard.tokens import tokenize
from flowql.compiler.dialect.standard.tree import Expr, Item, Join, Node, Relation
from flowql.compiler.dialect.standard.types import parse_type
from flowql.compiler.dialect.tokens import fragment, read_statements, split_statements

T = TypeVar("T")
STATEMENT_CHARS_MAX = 16 * 2**20  # a tree takes about a hundred times the memory of its text
RULES = Rules(parse_expr, lambda cur: parse_expr(cur, OTHER), parse_query, parse_order_items, parse_window)


def parse_trees(
    source: SourceText, variables: MutableMapping[str, str] | None = None
) -> tuple[list[Statement], list[Diagnostic]]:
    """All statements that could be read, and every mistake; after one, reading goes on behind the next semicolon.

    >>> statements, mistakes = parse_trees(SourceText("a.sql", "SELECT 1; SELECT FROM; CREATE INDEX i ON b (a)"))
    >>> len(statements), [m.title for m in mistakes]
    (1, ['expected an expression, found `FROM`', 'CREATE INDEX is not supported yet'])
    """
    known = {} if variables is None else variables

    def read(body: list[Tok], positions: Positions) -> list[Statement]:
        reader = Reader(source, body, positions, RULES)
        _check_length(reader, body)
        statements = [*parse_statement(reader, known)]
        for statement in statements:
            check_depth(statement)
        return statements

    return read_statements(source, known, read, tokenize, check_size=check_tokens)


def readers(source: SourceText, positions: Positions) -> list[Reader]:
    """One at the beginning of each statement."""
    return [Reader(source, body, positions, RULES) for body in split_statements(tokenize(source, positions)[0])]


def verb_of(text: str) -> str:
    """The first word of a statement, in upper case; of one that begins with WITH the verb behind its tables.

    >>> verb_of("WITH q AS (SELECT 1 AS id) DELETE FROM t USING q WHERE q.id = t.id")
    'DELETE'
    """
    source = SourceText("", text)
    found = readers(source, Positions(source))
    if not found:
        return ""
    first = found[0].tok.upper
    return verb_behind_tables(found[0]) or "SELECT" if first == "WITH" else first


def _check_length(cur: Reader, tokens: list[Tok]) -> None:
    if tokens[-1].end - tokens[0].start > STATEMENT_CHARS_MAX:
        mib = STATEMENT_CHARS_MAX // 2**20
        cur.fail("FQ1015", f"the statement is longer than {mib} MiB", label="begins here", help="split it into several")


def parse_fragment(source: SourceText, rule: Callable[[Reader], T]) -> T:
    """One fragment of a statement, with or without a semicolon. Raises `ParseError` or `UnsupportedError`."""
    body, positions = fragment(source, check_tokens, tokenize)
    cur = Reader(source, body, positions, RULES)
    _check_length(cur, body)
    result = rule(cur)
    cur.expect_end()
    for node in result if isinstance(result, tuple) else (result,):
        if isinstance(node, Node):
            check_depth(node)
    return result


# --- fragments ---


def type_ref(source: SourceText) -> TypeRef:
    """One type."""
    return parse_fragment(source, parse_type)


def relation_tree(source: SourceText) -> Relation:
    """A relation with its alias."""
    return parse_fragment(source, parse_relation)


def items_tree(source: SourceText) -> tuple[Item, ...]:
    """A select list."""
    return parse_fragment(source, parse_items)


def join_tree(source: SourceText) -> Join:
    """A join without its left side, which is a table without a name."""
    return parse_fragment(source, parse_join_alone)


def expression_tree(source: SourceText) -> Expr:
    """One expression."""
    return parse_fragment(source, parse_expr)
