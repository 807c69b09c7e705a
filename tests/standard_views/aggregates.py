"""Random aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.standard_views.expressions import NUMERIC, ORDERED, Expressions, Ref

# The type of a sum or an average without a cast. Nothing is computed from a numeric of unknown digits.
NATURAL = {"sum of int": "bigint", "sum of bigint": "numeric", "sum of decimal": "numeric", "average": "numeric"}


def aggregate(rng: Random, exprs: Expressions, scope: Sequence[Ref], labels: set[str]) -> tuple[str, str]:
    """A call and its type."""
    call, type_ = _call(rng, exprs, scope, labels)
    if rng.random() < 0.18:
        labels.add("filter")
        call = f"{call} FILTER (WHERE {exprs.condition(scope, 1)})"
    return (call, NATURAL.get(type_, type_)) if exprs.natural else _cast(call, type_)


def _cast(call: str, type_: str) -> tuple[str, str]:
    """Sums and averages have other types in DuckDB."""
    match type_:
        case "sum of int" | "sum of bigint":
            return f"CAST({call} AS BIGINT)", "bigint"
        case "sum of decimal":
            return f"CAST({call} AS DECIMAL(10, 2))", "decimal"
        case "average":
            return f"CAST({call} AS DOUBLE PRECISION)", "approximate"
    return call, type_


def _call(rng: Random, exprs: Expressions, scope: Sequence[Ref], labels: set[str]) -> tuple[str, str]:
    number = exprs.column(scope, NUMERIC)
    ordered = exprs.column(scope, ORDERED)
    kind = rng.choices(
        ("count", "extreme", "sum", "distinct", "average", "flag", "text", "list", "spread", "rank", "bits", "pairs"),
        (4, 4, 4, 2.5, 1, 0.6, 0.6, 0.4, 0.4, 0.4, 2.5, 4),
    )[0]
    whole = exprs.column(scope, ("int", "bigint"))
    if kind == "bits" and whole is not None:
        labels.add("bits")
        distinct = "DISTINCT " if rng.random() < 0.2 else ""
        return f"{rng.choice(('BIT_AND', 'BIT_OR', 'BIT_XOR'))}({distinct}{whole.text})", whole.type
    if kind == "pairs" and whole is not None and number is not None:
        labels.add("pairs")
        name = rng.choice(("REGR_COUNT", "REGR_AVGX", "REGR_SXX", "REGR_SXY", "COVAR_POP", "COVAR_SAMP"))
        call = f"{name}({number.text}, {whole.text} % 5)"
        return (call, "bigint") if name == "REGR_COUNT" else (call, "average")
    if kind == "extreme" and ordered is not None:
        e = ordered.text if rng.random() < 0.7 else exprs.value(scope, ordered.type, 1)
        return f"{rng.choice(('MIN', 'MAX'))}({e})", ordered.type
    if kind == "sum" and number is not None:
        e = number.text if rng.random() < 0.7 else exprs.value(scope, number.type, 1)
        return f"SUM({e})", number.type if number.type == "double" else f"sum of {number.type}"
    if kind == "distinct" and ordered is not None:
        labels.add("distinct aggregate")
        if rng.random() < 0.3 and number is not None:
            return f"SUM(DISTINCT {number.text})", number.type if number.type == "double" else f"sum of {number.type}"
        return f"COUNT(DISTINCT {ordered.text})", "bigint"
    if kind in ("average", "spread") and number is not None:
        name = "AVG" if kind == "average" else rng.choice(("STDDEV_POP", "VAR_POP", "STDDEV_SAMP", "VAR_SAMP"))
        e = number.text if kind == "average" else f"CAST({number.text} AS DOUBLE PRECISION)"
        return f"{name}({e})", "average"
    flag, text = exprs.column(scope, ("bool",)), exprs.column(scope, ("text",))
    if kind == "flag" and flag is not None:
        return f"{rng.choice(('BOOL_AND', 'BOOL_OR'))}({flag.text})", "bool"
    if kind == "text" and text is not None:
        distinct = "DISTINCT " if rng.random() < 0.3 else ""
        return f"STRING_AGG({distinct}{text.text}, ',' ORDER BY {text.text})", "text"
    if kind == "list" and ordered is not None:
        return f"ARRAY_AGG({ordered.text} ORDER BY {ordered.text} DESC NULLS LAST)", "list"
    if kind == "rank" and number is not None and number.type != "decimal":
        return f"PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {number.text})", number.type
    return rng.choice(("COUNT(*)", f"COUNT({ordered.text})" if ordered is not None else "COUNT(*)")), "bigint"
