"""How long the strings may be that functions read by a format, a grammar or a table of characters (rule R18).

These run in Python or in one call of C that keeps the lock of the interpreter: the limits hold a call to some ten milliseconds. `python -m tests.bounds` measures it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.bounds import SIZED, CallTooLong
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import Kind

PATTERN_CHARS_MAX = 1_000  # formats of dates and numbers, texts that are read by them, zones and intervals
PARSED_CHARS_MAX = (
    64 << 10
)  # what a cast reads as a number, a date, a boolean or an array; statements of DuckDB take no longer ones
JSON_CHARS_MAX = 512 << 10

_BY_PATTERN = """
CONVERT_TZ DATETOSTRING FORMAT_DATE FORMAT_TIME FORMAT_TIMESTAMP PARSE_DATE PARSE_TIME PARSE_TIMESTAMP STRINGTODATE STRINGTOTIMESTAMP TIMESTAMPTOSTRING
sql_age sql_from_unixtime sql_unix_timestamp sql_date_add sql_date_bin sql_date_part sql_date_subtract sql_date_trunc sql_extract sql_interval sql_interval_taken sql_make_timestamptz
sql_number_to_char sql_timestampdiff sql_timezone sql_to_char sql_to_date sql_to_date_by sql_to_micros sql_to_microstz sql_to_number sql_to_time
sql_to_timestamp sql_to_timestamp_by sql_to_timestamptz
"""
_JSON_AND_URLS = """
EXTRACTJSONFIELD IS_JSON_STRING JSON_ARRAY_CONTAINS JSON_ARRAY_LENGTH JSON_CONCAT JSON_ITEMS JSON_KEYS JSON_RECORDS
URL_DECODE_PARAM URL_ENCODE_PARAM URL_EXTRACT_FRAGMENT URL_EXTRACT_HOST URL_EXTRACT_PARAMETER URL_EXTRACT_PATH URL_EXTRACT_PORT
URL_EXTRACT_PROTOCOL URL_EXTRACT_QUERY
"""
_LIMITS: dict[str, int] = {
    **dict.fromkeys(_BY_PATTERN.split(), PATTERN_CHARS_MAX),
    **dict.fromkeys(_JSON_AND_URLS.split(), JSON_CHARS_MAX),
    **dict.fromkeys(("sql_to_array", "like", "not_like", "sql_ilike", "sql_normalize"), PARSED_CHARS_MAX),
    **dict.fromkeys(("REGEXP_REPLACE", "sql_regexp_replace"), JSON_CHARS_MAX),
}
_LIMITS |= dict.fromkeys(("sql_convert_from", "sql_convert_to"), PATTERN_CHARS_MAX)  # names of encodings
# Where the limit is that of one argument: a replacement is read as a text with references to groups, a pattern of LIKE as its segments.
_PLACES = {"REGEXP_REPLACE": (2,), "sql_regexp_replace": (2,), "like": (1,), "not_like": (1,), "sql_ilike": (1,)}
_PLACES |= dict.fromkeys(("sql_convert_from", "sql_convert_to"), (1,))


def chars_max(name: str, r: Resolution) -> int | None:
    """How many characters each string of a call may have; None: as many as a value."""
    if name in _LIMITS:
        return _LIMITS[name]
    if name.startswith("sql_jsonb") or name == "sql_to_jsonb":
        return JSON_CHARS_MAX
    casts = name == "cast" or name.startswith("sql_to_")
    return PARSED_CHARS_MAX if casts and r.result.kind not in SIZED else None


def limited(call: Callable[..., Any], name: str, r: Resolution) -> Callable[..., Any]:
    """The same function, which raises CallTooLong for strings above its limit."""
    limit = chars_max(name, r)
    places = [i for i, t in enumerate(r.args) if t.kind is Kind.STRING and i in _PLACES.get(name, (i,))]
    if limit is None or not places:
        return call

    def checked(*args: Any) -> Any:
        for i in places:
            if i < len(args) and args[i] is not None and len(args[i]) > limit:
                raise CallTooLong(
                    f"the string has {len(args[i]):,} characters, and this function reads at most {limit:,}"
                )
        return call(*args)

    return checked
