"""Functions that make as much of one row as a number or the product of two lengths says: DuckDB neither counts that memory nor can be interrupted meanwhile.

Each is covered by a macro of its name that checks the number first; constants are folded from the inside, so the check comes before the call
there, too. Table functions of the same names (`FROM range(...)`) give their rows piece by piece and have no limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flowql.query.errors import REFUSED, TOO_LARGE, QueryError, place_of_word

MADE_MAX = 10_000  # characters of a text or elements of a list: a vector of 2,048 lists of BIGINT takes 164 MB
REPLACED_MAX = (
    50_000_000  # characters that a replacement may make: the worst case of its arguments, which need not come
)
_TOO_MUCH = re.compile(r"flowql: (\w+)\(\)")
# A width or precision of five digits, or one that another argument gives.
_WIDE = {"printf": re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)"), "format": re.compile(r"\{[^{}]*(\d{5}|\{)")}


def _checked(name: str, value: str, is_too_much: str) -> str:
    """The argument, or an error if it asks for too much. NULL asks for nothing."""
    return f"CASE WHEN {is_too_much} THEN error('flowql: {name}()') ELSE {value} END"


def _range(name: str) -> str:
    zero = "(step - step)"  # of the type of step: a number or an interval
    a, b = f"(a + {zero})", f"(b + {zero})"  # dates become timestamps, whose difference is an interval
    up = f"b > a AND step > {zero} AND ({b} - {a}) / {MADE_MAX} > step"
    down = f"b < a AND step < {zero} AND ({a} - {b}) / {MADE_MAX} > {zero} - step"
    return (
        f"(b) AS system.main.{name}({_checked(name, 'b', f'b > {MADE_MAX}')}), "
        f"(a, b) AS system.main.{name}(a, {_checked(name, 'b', f'b > a AND b::HUGEINT - a > {MADE_MAX}')}), "
        f"(a, b, step) AS system.main.{name}(a, b, {_checked(name, 'step', f'({up}) OR ({down})')})"
    )


def _by_number(name: str, *signatures: str) -> str:
    """signatures: arguments, of which `n` says how much."""
    number = _checked(name, "n", f"n > {MADE_MAX}")
    calls = (", ".join(number if a == "n" else a for a in s.split(", ")) for s in signatures)
    return ", ".join(f"({s}) AS system.main.{name}({call})" for s, call in zip(signatures, calls, strict=True))


def _repeat() -> str:
    size = "CASE typeof(x) WHEN 'BLOB' THEN octet_length(x::VARCHAR::BLOB) ELSE len(x::VARCHAR) END"  # of a list, that of its text
    return f"(x, n) AS system.main.repeat(x, {_checked('repeat', 'n', f'n > {MADE_MAX} // greatest(1, {size})')})"


def _replace() -> str:
    grown = f"len(f) > 0 AND len(s)::HUGEINT * len(t) // greatest(1, len(f)) > {REPLACED_MAX}"
    return f"(s, f, t) AS system.main.replace(s, f, {_checked('replace', 't', grown)})"


def _regexp_replace() -> str:
    """A pattern may match between all characters."""
    to = _checked("regexp_replace", "t", f"(len(s)::HUGEINT + 1) * len(t) > {REPLACED_MAX}")
    return f"(s, f, t) AS system.main.regexp_replace(s, f, {to}), (s, f, t, o) AS system.main.regexp_replace(s, f, {to}, o)"


_BODIES: Mapping[str, str] = {
    "repeat": _repeat(),
    "replace": _replace(),
    "regexp_replace": _regexp_replace(),
    **{name: _range(name) for name in ("range", "generate_series")},
    **{name: _by_number(name, "x, n, fill") for name in ("lpad", "rpad")},
    **{name: _by_number(name, "x, n", "x, n, fill") for name in ("list_resize", "array_resize")},
    "bitstring": _by_number("bitstring", "x, n"),
}
MACROS = tuple(f"CREATE MACRO {name}{body}" for name, body in _BODIES.items())


def check_calls(nodes: Iterable[Mapping[str, Any]], sql: str) -> None:
    """nodes: of a statement as DuckDB's parser gives it. Raises QueryError for a call that the macros would not see."""
    for n in nodes:
        name = str(n.get("function_name", "")).casefold()
        if name in _BODIES and (n.get("catalog") or n.get("schema")):
            title = f"{name}() is called by its name alone, without a schema"
            raise QueryError(title, code=REFUSED, span=place_of_word(sql, name))
        if name in _WIDE and n.get("class") == "FUNCTION" and not _is_narrow(_WIDE[name], n.get("arguments") or []):
            title = f"{name}() takes a constant text with widths below {MADE_MAX:,}"
            raise QueryError(title, code=REFUSED, help="lpad or rpad", span=place_of_word(sql, name))


def _is_narrow(wide: re.Pattern[str], arguments: list[Mapping[str, Any]]) -> bool:
    literal = arguments[0]["expression"].get("literal") if arguments else None
    text = str(literal["text"]).replace("{{", "").replace("%%", "") if literal else None
    return text is not None and wide.search(text) is None


def grown(message: str, sql: str) -> QueryError | None:
    """The error of a macro in terms of the user's statement."""
    found = _TOO_MUCH.search(message)
    if found is None:
        return None
    name = found[1]
    most = REPLACED_MAX if name in ("replace", "regexp_replace") else MADE_MAX
    title = f"{name}() makes at most {most:,} characters or elements of one row"
    help_ = f"rows instead of a list:  FROM {name}(...)" if name in ("range", "generate_series") else ""
    return QueryError(title, code=TOO_LARGE, help=help_, span=place_of_word(sql, name))
