"""What holds of every random tree: it reads back, sqlglot sees the same query, and broken texts of it are mistakes of the user."""

from __future__ import annotations

import random
from dataclasses import replace

import sqlglot

from flowql.compiler.diagnostics.render import render
from flowql.compiler.diagnostics.source import NOWHERE, SourceText
from flowql.compiler.dialect.ast import Statement
from flowql.compiler.dialect.parser import parse_statements
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.statement_tree import QueryStatement
from flowql.compiler.dialect.standard.tree import Node
from flowql.compiler.dialect.walks import children, walk
from tests.compiler.dialect.standard.shapes import ours, theirs
from tests.compiler.dialect.standard.trees import TreeMaker
from tests.compiler.dialect.standard.writing import to_sql

PIECES = [
    "", "(", ")", ",", ".", ";", "'", '"', "::", "->", "=>", ":=", "[", "]", "*", "-", "--", "/*", "$", "${x}", "$$", "e'\\x", "1e", "0x1", "é",
    "\x00", " SELECT ", " FROM ", " JOIN ", " ON ", " AS ", " WITH ", " UNION ", " NOT ", " OVER ", " IN ", " BETWEEN ", " VALUES ", " TABLE ",
    " INTERVAL ", " LATERAL ", " ROWS ", " CASE ", " END ", " ARRAY", " struct<", ">>", " NULLS ", " FOR ", " EMIT ", " timestamp with ",
]  # fmt: skip


def tree_of(text: str) -> Statement:
    """The tree of one statement."""
    statements, mistakes = parse_trees(SourceText("q.sql", text))
    assert not mistakes, f"{mistakes[0].title}\n{text}"
    (tree,) = statements
    return tree


def nodes_of(statement: Statement) -> list[Node]:
    """The nodes of its tree."""
    return [node for child in children(statement) for node in walk(child)]


def without_text(statement: Statement) -> Statement:
    """The statement without its text as written."""
    return replace(statement, text="")


def check_round_trip(seed: int) -> None:
    """The tree of the text of a tree is that tree, and each node has a span in the text."""
    tree = TreeMaker(random.Random(seed)).statement(3)
    text = to_sql(tree)
    found = tree_of(text)
    assert without_text(found) == tree, f"seed {seed}: {text}"
    assert to_sql(found) == text
    lines = text.split("\n")
    for node in nodes_of(found):
        assert node.span != NOWHERE, f"seed {seed}: {type(node).__name__} in {text}"
        assert 1 <= node.span.line <= len(lines)
        assert 1 <= node.span.column <= len(lines[node.span.line - 1]) + 1


def check_sqlglot(seed: int) -> None:
    """sqlglot reads the same operators, with the same operands, and the same clauses."""
    text = to_sql(TreeMaker(random.Random(seed), plain=True).query(3))
    tree = tree_of(text)
    assert isinstance(tree, QueryStatement)
    assert ours(tree.query) == theirs(sqlglot.parse_one(text, read="postgres")), f"seed {seed}: {text}"


def check_broken(seed: int) -> None:
    """A text with pieces taken out, put in and moved is read, or refused with diagnostics whose spans lie in it."""
    rng = random.Random(seed)
    text = to_sql(TreeMaker(rng).statement(rng.randint(0, 2)))
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(text))
        end = min(len(text), start + rng.choice([0, 1, 3, 10]))
        piece = rng.choice(PIECES) if rng.random() < 0.7 else text[start:end] * 2
        text = text[:start] + piece + text[end:]
    _, mistakes = parse_statements(SourceText("x.sql", text), "standard")
    lines = text.split("\n")
    for found in mistakes:
        assert found.title, text
        assert 1 <= found.span.line <= len(lines), text
        assert 1 <= found.span.column <= len(lines[found.span.line - 1]) + 1, text
    assert render(mistakes).count("flowql explain") == len(mistakes)
