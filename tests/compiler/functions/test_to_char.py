"""TO_CHAR and TO_NUMBER by patterns, against answers of PostgreSQL 15 for generated pairs of pattern and value: the same, or refused."""

from __future__ import annotations

from ast import literal_eval
from decimal import Decimal
from pathlib import Path

import pytest

from flowql.compiler.functions.sql_number_patterns import read, written
from flowql.compiler.functions.sql_to_char import to_char_micros

# ts (of microseconds since 1970), num or read (TO_NUMBER); pattern, value, answer or `error`
ANSWERS = Path(__file__).with_name("to_char_answers.tsv").read_text(encoding="utf-8").splitlines()
ERROR = "error"


def _value(text: str) -> int | float | Decimal | str:
    if text.startswith("Decimal("):
        return Decimal(text.removeprefix("Decimal('").removesuffix("')"))
    found: int | float | str = literal_eval(text)
    return found


def _ours(kind: str, pattern: str, value: str) -> str:
    v = _value(value)
    try:
        match kind:
            case "ts":
                return to_char_micros(int(v), pattern)
            case "num":
                assert not isinstance(v, str)
                return written(v, pattern)
        return f"{read(str(v), pattern):f}"
    except (ValueError, ArithmeticError):
        return ERROR


def _same(kind: str, a: str, b: str) -> bool:
    return Decimal(a) == Decimal(b) if kind == "read" and ERROR not in (a, b) else a == b


@pytest.mark.parametrize("kind", ["ts", "num", "read"])
def test_values_are_written_and_read_as_postgresql_does(kind: str) -> None:
    """64 of 4,000 pairs gave another text, or another number, without a word."""
    of = [tuple(line.split("\t")) for line in ANSWERS if line.startswith(kind)]
    answers = [(pattern, value, wanted, _ours(kind, pattern, value)) for _, pattern, value, wanted in of]
    assert [a for a in answers if a[3] != ERROR and not _same(kind, a[3], a[2])] == []
    assert sum(a[3] != ERROR for a in answers) > 50


@pytest.mark.parametrize(
    ("kind", "pattern", "value", "wanted"),
    [
        ("ts", "FMFF3", "4453", "004"),
        ("ts", "FMUS", "4453", "004453"),
        ("ts", "FMOF", "0", "+0"),
        ("ts", "Y,YYYth", "0", "1,970th"),
        ("num", "9,S", "1", ERROR),  # PostgreSQL: `1+,`
        ("num", "FM99,.9", "Decimal('0.1')", ERROR),
        ("num", "9,.9", "Decimal('0.1')", "   .1"),
        ("read", "9.99", "'0.004'", ERROR),  # 0.00
        ("read", "9MI", "'1 -'", ERROR),  # 1
        ("read", "0.9", "'  -1'", ERROR),  # 1
        ("read", "99999", "'   -12'", "-12"),
    ],
)
def test_what_postgresql_reads_otherwise_than_it_looks_is_refused(
    kind: str, pattern: str, value: str, wanted: str
) -> None:
    assert _ours(kind, pattern, value) == wanted
