"""Names of PostgreSQL that DuckDB takes for words of its own: a column `at`, a table `show`. They are put into quotes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeVar

from flowql.compiler.dialect.standard import tree as t

WORDS = frozenset(
    [
        "anti",
        "asof",
        "at",
        "by",
        "columns",
        "describe",
        "generated",
        "glob",
        "lambda",
        "map",
        "pivot",
        "pivot_longer",
        "pivot_wider",
        "positional",
        "qualify",
        "semi",
        "show",
        "struct",
        "summarize",
        "try_cast",
        "tuple",
        "unpack",
        "unpivot",
    ]
)
_MARK = "flowql_name_"  # before such a name until the statement is written
N = TypeVar("N", bound=t.Node)


def with_words_as_names(node: N) -> N:
    """The tree with a mark before these names, which `in_quotes` reads."""
    marked: N = _with_marks(t.with_children(node, with_words_as_names))
    return marked


def _with_marks(made: t.Node) -> Any:
    match made:
        case t.ColumnRef():
            return replace(made, parts=_marked(made.parts))
        case t.Item() if made.alias is not None:
            return replace(made, alias=_mark(made.alias))
        case t.Alias():
            return replace(made, name=_mark(made.name), columns=_marked(made.columns))
        case t.Table():
            return replace(made, name=_marked(made.name))
        case t.Join():
            return replace(made, using=_marked(made.using))
        case t.With():
            return replace(made, name=_mark(made.name), columns=_marked(made.columns))
    return made


def in_quotes(sql: str) -> str:
    """The statement that was written with marks."""
    return re.sub(rf"\b{_MARK}(\w+)", r'"\1"', sql)


def _marked(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_mark, names))


def _mark(name: str) -> str:
    return _MARK + name if name in WORDS else name
