"""JSONB in expressions of standard SQL: texts in quotes beside it are JSON, or arrays of keys, and operators of arrays mean it, too."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Func
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.coercion import convert
from flowql.compiler.functions.sql_jsonb import TEXTS, holds_json
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.types import JSONB, NULL, STRING

# Function -> the places of its arguments that are JSON, and of those that are arrays of texts.
ARGUMENTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(("JSONB_PATH", "JSONB_PATH_TEXT", "JSONB_HAS_ANY", "JSONB_HAS_ALL"), ((0,), (1,))),
    **dict.fromkeys(("JSONB_CONTAINS", "JSONB_IS_IN", "JSONB_CONCAT"), ((0, 1), ())),
    "JSONB_SET": ((0, 2), (1,)),
    **dict.fromkeys(
        (
            "JSONB_FIELD", "JSONB_FIELD_TEXT", "JSONB_EXTRACT_PATH", "JSONB_EXTRACT_PATH_TEXT", "JSONB_HAS", "JSONB_TYPEOF",
            "JSONB_ARRAY_LENGTH", "JSONB_ELEMENTS", "JSONB_ELEMENTS_TEXT", "JSONB_KEYS", "JSONB_VALUES", "JSONB_VALUES_TEXT",
            "JSONB_STRIP_NULLS", "JSONB_PRETTY", "JSONB_WITHOUT",
        ),
        ((0,), ()),
    ),
}  # fmt: skip
# Operators of arrays -> what they are between values of JSONB.
OF_ARRAYS = {"ARRAY_HAS_ALL": "JSONB_CONTAINS", "ARRAY_IS_IN": "JSONB_IS_IN", "concat": "JSONB_CONCAT"}


def adapted(node: Func, name: str, args: Sequence[Expr]) -> list[Expr]:
    """The arguments of a function of JSONB, texts in quotes as what they are there. Raises CompileError."""
    json, lists = ARGUMENTS[name]
    made = [_adapted(a, i, json, lists) for i, a in enumerate(args)]
    if made and made[0].type == STRING:
        shown = text_of(node.args[0])
        title = f"{shown} is a string, and {text_of(node)} takes JSONB"
        raise mistake("FQ2005", title, node.span, "a string", help=f"write  CAST({shown} AS JSONB)")
    return made


def _adapted(e: Expr, at: int, json: Sequence[int], lists: Sequence[int]) -> Expr:
    if not isinstance(e, Literal) or e.type not in (STRING, NULL):
        return e
    if at in json:
        return convert(e, JSONB)
    if at in lists and e.type == STRING:
        return Call(TEXTS, "sql_to_array", (e,), getattr(e, "span", NOWHERE))
    return e


def json_equal(e: Expr) -> Expr:
    """The expression by whose values JSONB, and values with JSONB inside, are compared for equality. Other expressions stay as they are."""
    return Call(e.type, "sql_jsonb_equal", (e,), getattr(e, "span", NOWHERE)) if holds_json(e.type) else e


def beside_json(args: Sequence[Expr]) -> bool:
    """Whether one of several values is JSONB."""
    return any(a.type == JSONB for a in args)
