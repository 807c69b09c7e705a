"""From a statement of another dialect to the text of one of FlowQL's standard dialect."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.declarations import DECLARATIONS
from flowql.compiler.dialect.foreign.dialects import written
from flowql.compiler.dialect.foreign.expressions import EXPRESSIONS
from flowql.compiler.dialect.foreign.functions import FUNCTIONS
from flowql.compiler.dialect.foreign.kinds import Columns
from flowql.compiler.dialect.foreign.queries import QUERIES
from flowql.compiler.dialect.foreign.reading import Piece, parsed
from flowql.compiler.dialect.foreign.times import TIMES
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.untranslated import Problem, Untranslated

RULES: dict[type, Rule] = {**EXPRESSIONS, **TIMES, **FUNCTIONS, **QUERIES, **DECLARATIONS}
_MODIFIERS = ("with_", "order", "limit", "offset")
_BINARY = ("this", "expression")

# Nodes that mean the same in FlowQL's standard dialect as in all others, with the arguments for which this holds.
SAME: dict[type, tuple[str, ...]] = {
    exp.From: ("this",), exp.Where: ("this",), exp.Having: ("this",), exp.Group: ("expressions", "grouping_sets", "cube", "rollup"),
    exp.GroupingSets: ("expressions",), exp.Cube: ("expressions",), exp.Rollup: ("expressions",), exp.Order: ("this", "expressions"), exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("this", "expression"), exp.Offset: ("expression",), exp.Fetch: ("direction", "count", "limit_options"), exp.LimitOptions: ("rows", "percent"),
    exp.With: ("expressions",), exp.CTE: ("this", "alias", "materialized"), exp.Subquery: ("this", "alias", *_MODIFIERS), exp.TableAlias: ("this", "columns"),
    exp.Alias: ("this", "alias"), exp.Paren: ("this",), exp.Tuple: ("expressions",), exp.Boolean: ("this",), exp.Null: (), exp.Star: (), exp.Distinct: ("expressions", "on"),
    exp.Union: ("this", "expression", "distinct", *_MODIFIERS), exp.Except: ("this", "expression", "distinct", *_MODIFIERS), exp.Intersect: ("this", "expression", "distinct", *_MODIFIERS),
    exp.Values: ("expressions", "alias"), exp.Var: ("this",), exp.Exists: ("this",), exp.Any: ("this",), exp.All: ("this",),
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Mul, exp.Escape), _BINARY),
    exp.Not: ("this",), exp.Neg: ("this",), exp.Between: ("this", "low", "high"), exp.In: ("this", "expressions", "query"),
    exp.Case: ("this", "ifs", "default"), exp.Nullif: _BINARY,
    exp.Window: ("this", "partition_by", "order", "spec", "alias", "over"), exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"), 
    exp.WithinGroup: _BINARY, exp.IgnoreNulls: ("this",), exp.RespectNulls: ("this",),
    **dict.fromkeys((exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist), ()), exp.Ntile: ("this",),
    **dict.fromkeys((exp.Lag, exp.Lead), ("this", "offset", "default")), exp.Count: ("this",), exp.Sum: ("this",), exp.Min: ("this",), exp.Max: ("this",),
    exp.LogicalAnd: ("this",), exp.LogicalOr: ("this",), exp.AnyValue: ("this",), exp.Abs: ("this",), exp.Upper: ("this",), exp.Lower: ("this",),
    exp.Array: ("expressions",),
}  # fmt: skip


def translate(piece: Piece, text: str, dialect: str, columns: Columns) -> str:
    """The statement in FlowQL, without a semicolon. Raises Untranslated with all that has no translation.

    text: of the file that the piece is from. columns: name of a relation -> its columns with their kinds (`kinds.kind_of_type`), None if it is unknown.
    """
    tree = parsed(piece, text, dialect)
    translation = Translation(dialect, columns, RULES, SAME)
    try:
        made = translation.noted(tree)
        if translation.problems:
            raise Untranslated(*translation.problems)
        return written(made) + translation.behind + _closing(piece)
    except RecursionError:
        problem = Problem("the statement", "it is nested too deeply", "split it", piece.start, piece.start + 1)
        raise Untranslated(problem) from None


def _closing(piece: Piece) -> str:
    return "\nEMIT ON WINDOW CLOSE" if piece.closes else "\nAPPEND ONLY" if piece.appends else ""
