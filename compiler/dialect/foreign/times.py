"""Rules for functions of dates and times."""

from __future__ import annotations

import re

from sqlglot import exp

from flowql.compiler.dialect.foreign.building import call, cast, quotient
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_SPARK_UNITS = {"MM": "MONTH", "MON": "MONTH", "YYYY": "YEAR", "YY": "YEAR"}
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
_DATE_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
# sqlglot's form of the patterns of other dialects -> PostgreSQL's.
_PATTERNS = {
    "%Y": "YYYY", "%y": "YY", "%m": "MM", "%d": "DD", "%H": "HH24", "%I": "HH12", "%M": "MI", "%S": "SS", "%j": "DDD", "%p": "AM",
    "%b": "Mon", "%B": "FMMonth", "%a": "Dy", "%A": "FMDay", "%mstrict": "MM", "%dstrict": "DD", "%F": "YYYY-MM-DD", "%T": "HH24:MI:SS",
    "%Hstrict": "HH24", "%Mstrict": "MI", "%Sstrict": "SS", "%jstrict": "DDD",
}  # fmt: skip
_PART = re.compile(r"%-?[A-Za-z](?:strict)?|[^%]+|%")
# Functions of one part of a time -> the field of EXTRACT, what is added.
_PARTS: dict[type, tuple[str, int]] = {
    exp.Year: ("YEAR", 0), exp.Month: ("MONTH", 0), exp.Day: ("DAY", 0), exp.DayOfMonth: ("DAY", 0), exp.Quarter: ("QUARTER", 0), exp.Hour: ("HOUR", 0),
    exp.Minute: ("MINUTE", 0), exp.DayOfYear: ("DOY", 0), exp.DayOfWeekIso: ("ISODOW", 0),
}  # fmt: skip
_WEEKS_FROM_SUNDAY = ("bigquery",)


def unit_of(tr: Translation, node: Node) -> str:
    """The unit of a function, in upper case and singular. Raises Untranslated."""
    unit = node.args.get("unit")
    if isinstance(unit, exp.WeekStart) and unit.name.upper() in ("SUNDAY", "MONDAY"):
        return "WEEK"
    if isinstance(unit, exp.Anonymous | exp.WeekStart) or (unit is not None and unit.expressions):
        refuse(
            node,
            f"{tr.name_of(node)} of weeks from another day",
            "weeks begin on Monday in FlowQL",
            "write WEEK, or move the time by days",
        )
    text = (unit.name if unit is not None else "DAY").upper()
    text = _SPARK_UNITS.get(text, text) if tr.dialect == "spark" else text
    text = "WEEK" if text == "ISOWEEK" else text.removesuffix("S") if text.removesuffix("S") in _UNITS else text
    if text not in _UNITS:
        refuse(
            node,
            f"{tr.name_of(node)} of the unit {text}",
            f"no translation from {tr.dialect} is known",
            f"known are {', '.join(_UNITS)}",
        )
    return text


def _from_sunday(tr: Translation, node: Node) -> bool:
    unit = node.args.get("unit")
    return isinstance(unit, exp.WeekStart) and unit.name.upper() == "SUNDAY"


def _whole(node: Node) -> Node:
    return cast(node, "BIGINT")


def _truncated(unit: str, node: Node) -> Node:
    return call("DATE_TRUNC", exp.Literal.string(unit.lower()), node)


def _check_kind(tr: Translation, node: Node, kind: str) -> None:
    """Refuses a function whose result is of the kind of its argument, where that is not known."""
    if kind not in ("date", "timestamp"):
        why = "whether its argument is a date or a time is not known, and so whether its result is"
        refuse(node, tr.name_of(node), why, "cast the argument to DATE or TIMESTAMP")


def truncation(tr: Translation, node: Node) -> Node:
    """DATE_TRUNC. Of a date it is a date in most dialects, and a time here."""
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    if node.args.get("zone"):
        refuse(
            node,
            f"{tr.name_of(node)} of a time zone",
            f"no translation from {tr.dialect} is known",
            "write DATE_TRUNC(unit, t, zone)",
        )
    unit, value = unit_of(tr, node), tr(node.this)
    made = _truncated(unit, value)
    if _from_sunday(tr, node):
        day = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("DAY"))
        made = exp.Paren(
            this=exp.Sub(this=_truncated(unit, exp.Add(this=value, expression=day)), expression=day.copy())
        )
    kind = "date" if isinstance(node, exp.DateTrunc) and tr.dialect in ("bigquery", "spark") else tr.kinds.of(node.this)
    _check_kind(tr, node, kind)
    return (
        cast(made, "DATE")
        if kind == "date"
        and (isinstance(node, exp.DateTrunc) or tr.dialect in ("snowflake", "trino"))
        and tr.dialect != "duckdb"
        else made
    )


def addition(tr: Translation, node: Node) -> Node:
    """DATE_ADD and its like: a date stays a date where days or more are added."""
    unit = unit_of(tr, node)
    to_date = isinstance(node, exp.TsOrDsAdd) and tr.dialect == "spark"
    kind = "date" if to_date else tr.kinds.of(node.this)
    _check_kind(tr, node, kind)
    value = cast(tr(node.this), "DATE") if to_date else tr(node.this)
    span = _span(tr, node.expression, unit)
    operator = exp.Sub if isinstance(node, exp.DateSub | exp.TimestampSub | exp.DatetimeSub) else exp.Add
    made = operator(this=value, expression=span)
    return (
        cast(made, "DATE")
        if kind == "date" and unit in _DATE_UNITS and tr.dialect != "duckdb"
        else exp.Paren(this=made)
    )


def _span(tr: Translation, node: Node, unit: str) -> Node:
    amount = node.this if isinstance(node, exp.Interval) else node
    negative = isinstance(amount, exp.Neg)
    number = amount.this if negative else amount
    months = {"QUARTER": 3}.get(unit, 1)
    word = exp.var("MONTH" if unit == "QUARTER" else unit)
    if isinstance(number, exp.Literal) and re.fullmatch(r"\d+", str(number.this)):
        return exp.Interval(
            this=exp.Literal.string(f"{'-' if negative else ''}{int(str(number.this)) * months}"), unit=word
        )
    if tr.kinds.of(amount) != "int":
        refuse(
            node,
            "an amount of time that is not a whole number",
            "fractions are cut or rounded in different ways",
            "write  n * INTERVAL '1' DAY",
        )
    return exp.Mul(
        this=exp.Paren(this=tr(amount)), expression=exp.Interval(this=exp.Literal.string(str(months)), unit=word)
    )


def difference(tr: Translation, node: Node) -> Node:
    """DATEDIFF: Snowflake, DuckDB, and BigQuery for dates and datetimes count the boundaries between two times, all others whole units."""
    unit = unit_of(tr, node)
    moments = [_undated(tr, node, n) for n in (node.this, node.expression)]
    late, early = (tr(n) for n in moments)
    boundaries = node.args.get("date_part_boundary")
    dates = all(isinstance(n, exp.TsOrDsToDate) or tr.kinds.of(n) == "date" for n in moments)
    if unit == "DAY" and (boundaries or dates):
        return exp.Paren(this=exp.Sub(this=cast(late, "DATE"), expression=cast(early, "DATE")))
    if not boundaries:
        return call("TIMESTAMPDIFF", exp.var(unit), cast(early, "TIMESTAMP"), cast(late, "TIMESTAMP"))
    if _from_sunday(tr, node):
        refuse(node, f"{tr.name_of(node)} of weeks", "they begin on Sunday there, and on Monday here", "write ISOWEEK")
    return _boundaries(tr, node, unit, early, late)


def _undated(tr: Translation, node: Node, moment: Node) -> Node:
    """The moment of Spark's datediff(HOUR, a, b), which sqlglot reads as a date, as in datediff(a, b)."""
    dated = tr.dialect == "spark" and node.args.get("unit") is not None and isinstance(moment, exp.TsOrDsToDate)
    return moment.this if dated else moment


def _boundaries(tr: Translation, node: Node, unit: str, early: Node, late: Node) -> Node:
    if unit in _SECONDS:
        seconds = exp.Sub(this=_epoch(unit, late), expression=_epoch(unit, early))
        return _whole(quotient(exp.Paren(this=seconds), exp.Literal.number(_SECONDS[unit])))
    if unit == "WEEK":
        days = exp.Sub(this=cast(_truncated(unit, late), "DATE"), expression=cast(_truncated(unit, early), "DATE"))
        return exp.Paren(this=quotient(exp.Paren(this=days), exp.Literal.number(7)))
    if unit not in ("MONTH", "QUARTER", "YEAR"):
        refuse(node, f"{tr.name_of(node)} of {unit}", f"no translation from {tr.dialect} is known")
    years = exp.Paren(this=exp.Sub(this=_field("YEAR", late), expression=_field("YEAR", early)))
    if unit == "YEAR":
        return _whole(years)
    per_year = exp.Mul(this=years, expression=exp.Literal.number(12 if unit == "MONTH" else 4))
    return _whole(exp.Sub(this=exp.Add(this=per_year, expression=_field(unit, late)), expression=_field(unit, early)))


def _field(name: str, node: Node) -> Node:
    return exp.Extract(this=exp.var(name), expression=node.copy())


def _epoch(unit: str, node: Node) -> Node:
    return _field("EPOCH", _truncated(unit, cast(node.copy(), "TIMESTAMP")))


def extraction(tr: Translation, node: Node) -> Node:
    """EXTRACT, a whole number in all dialects but PostgreSQL's."""
    if tr.as_postgres:
        return tr.copied(node, ("this", "expression"))
    name = node.this.name.upper()
    if name == "DAYOFWEEK" and tr.dialect in ("bigquery", "snowflake"):
        return _week_day(tr, node.expression)
    if name in ("SECOND", "SECONDS") and tr.dialect in ("snowflake", "bigquery", "trino", "duckdb", "flink"):
        return _whole(call("FLOOR", _field("SECOND", tr(node.expression))))
    name = {"DAYOFYEAR": "DOY", "ISOWEEK": "WEEK"}.get(name, name)
    if name not in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "QUARTER", "DOY", "WEEK") or (
        name == "WEEK" and tr.dialect in _WEEKS_FROM_SUNDAY and node.this.name.upper() == "WEEK"
    ):
        refuse(
            node,
            f"EXTRACT of {node.this.name.upper()}",
            "systems count it in different ways",
            "write EXTRACT of ISODOW, ISOYEAR or EPOCH as in PostgreSQL",
        )
    return _whole(_field(name, tr(node.expression)))


def part(tr: Translation, node: Node) -> Node:
    """YEAR(t) and its like."""
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    return _whole(_field(_PARTS[type(node)][0], _moment(tr, node.this)))


def week_day(tr: Translation, node: Node) -> Node:
    """DAYOFWEEK: Sunday is 1 in Spark and BigQuery, 0 in Snowflake and DuckDB."""
    if tr.dialect not in ("spark", "bigquery", "snowflake", "duckdb"):
        refuse(
            node,
            tr.name_of(node),
            "days of the week are numbered in different ways",
            "write EXTRACT(DOW FROM t) or EXTRACT(ISODOW FROM t)",
        )
    return _week_day(tr, node.this)


def _week_day(tr: Translation, node: Node) -> Node:
    made = _whole(_field("DOW", _moment(tr, node)))
    return (
        exp.Paren(this=exp.Add(this=made, expression=exp.Literal.number(1)))
        if tr.dialect in ("spark", "bigquery")
        else made
    )


def week(tr: Translation, node: Node) -> Node:
    """WEEKOFYEAR, the week of ISO 8601."""
    return _whole(_field("WEEK", _moment(tr, node.this)))


def _moment(tr: Translation, node: Node) -> Node:
    inner = node.this if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format") else node
    if tr.kinds.of(inner) in ("date", "timestamp"):
        return tr(inner)
    return cast(tr(inner), "TIMESTAMP")


def to_date(tr: Translation, node: Node) -> Node:
    """DATE(x) and TO_DATE(x) without a pattern."""
    if node.args.get("format") or node.args.get("zone") or node.expressions or node.this is None:
        refuse(
            node,
            "a string read by a pattern",
            "PostgreSQL's patterns accept strings that other systems refuse",
            "write TO_DATE(s, 'YYYYMMDD') or TO_TIMESTAMP(s, pattern), if this is what you want",
        )
    return cast(tr(node.this), "DATE")


def formatted(tr: Translation, node: Node) -> Node:
    """DATE_FORMAT, STRFTIME and their like become TO_CHAR."""
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    pattern = node.args.get("format")
    if not isinstance(pattern, exp.Literal) or node.args.get("culture") or node.args.get("zone"):
        refuse(
            node,
            "a pattern of a time that is not a constant",
            f"patterns of {tr.dialect} are translated when the statement is",
            "write TO_CHAR(t, pattern)",
        )
    inner = node.this
    while isinstance(inner, exp.TimeStrToTime | exp.TsOrDsToTimestamp | exp.TsOrDsToDate) and not inner.args.get(
        "format"
    ):
        inner = inner.this
    value = tr(inner) if tr.kinds.of(inner) in ("timestamp", "date") else cast(tr(inner), "TIMESTAMP")
    return call("TO_CHAR", value, exp.Literal.string(_pattern(tr, node, str(pattern.this))))


def _pattern(tr: Translation, node: Node, text: str) -> str:
    made = ""
    for piece in _PART.findall(text):
        if piece in _PATTERNS:
            made += _PATTERNS[piece]
        elif "%" in piece:
            refuse(
                node,
                f"{piece.removesuffix('strict')} in the pattern of a time",
                "PostgreSQL has no such pattern",
                "write TO_CHAR(t, pattern) with one of its patterns",
            )
        else:
            made += f'"{piece}"' if any(c.isalnum() for c in piece) else piece
    return made


def now(tr: Translation, node: Node) -> Node:
    return exp.CurrentTimestamp()


def today(tr: Translation, node: Node) -> Node:
    if node.this is not None:
        refuse(
            node,
            "CURRENT_DATE of a time zone",
            f"no translation from {tr.dialect} is known",
            "write CAST(NOW() AT TIME ZONE zone AS DATE)",
        )
    return exp.CurrentDate()


def from_unix(tr: Translation, node: Node) -> Node:
    """FROM_UNIXTIME(n) of Trino and TIMESTAMP_SECONDS(n) of BigQuery."""
    if tr.as_postgres:
        return tr.copied(node, tuple(node.arg_types))
    scale = node.args.get("scale")
    if (
        tr.dialect not in ("trino", "bigquery")
        or (scale is not None and str(scale.this) not in ("0",))
        or node.args.get("zone")
    ):
        refuse(node, tr.name_of(node), f"no translation from {tr.dialect} is known", "write TO_TIMESTAMP(seconds)")
    return call("TO_TIMESTAMP", tr(node.this))


TIMES: dict[type, Rule] = {
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc, exp.DatetimeTrunc), truncation),
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd, exp.TimestampSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TsOrDsAdd), addition),
    **dict.fromkeys((exp.DateDiff, exp.TimestampDiff, exp.DatetimeDiff), difference), exp.Extract: extraction, **dict.fromkeys(_PARTS, part),
    exp.DayOfWeek: week_day, exp.WeekOfYear: week, **dict.fromkeys((exp.TsOrDsToDate, exp.Date), to_date), exp.TimeToStr: formatted,
    exp.CurrentTimestamp: now, exp.CurrentDate: today, exp.UnixToTime: from_unix,
}  # fmt: skip
