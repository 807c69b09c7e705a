"""Nodes that mean the same in FlowQL's standard dialect as in all others, with the arguments of which this holds."""

from __future__ import annotations

from sqlglot import exp

_MODIFIERS = ("with_", "order", "limit", "offset")
_BINARY = ("this", "expression")

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
