"""TO_DATE and TO_TIMESTAMP by patterns, against answers of PostgreSQL 15 for generated pairs of pattern and text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.functions.sql_calendar import civil, shown_year
from flowql.compiler.functions.sql_from_char import read_date, read_moment
from tests.compiler.functions.test_sql_values import bound, evaluated, shown
from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

# pattern, text, TO_DATE, TO_TIMESTAMP in milliseconds since 1970
ANSWERS = Path(__file__).with_name("to_date_answers.tsv").read_text(encoding="utf-8").splitlines()
VALUES = """
TO_DATE('05.02.24', 'DD.MM.YY') => 2024-02-05
TO_DATE('05/02/69 10:00', 'DD.MM.YY') => 2069-02-05
TO_DATE('05-02-70', 'DD.MM.YY') => 1970-02-05
TO_DATE('05 02 024', 'DD.MM.YYY') => 2024-02-05
TO_DATE('05.02.4', 'DD.MM.Y') => 2004-02-05
TO_TIMESTAMP('2024-02-05 rest', 'YYYY.MM.DD') => 2024-02-05 00:00:00+00
TO_TIMESTAMP('2024-02-05 10+05:30', 'YYYY-MM-DD HH24TZH:TZM') => 2024-02-05 04:30:00+00
"""


def _date(text: str, pattern: str) -> str:
    year, month, day = civil(read_date(text, pattern))
    return f"{abs(shown_year(year)):04d}-{month:02d}-{day:02d} {'AD' if year > 0 else 'BC'}"


def _or_error(read: Callable[[str, str], object], text: str, pattern: str) -> str:
    try:
        return str(read(text, pattern))
    except (ValueError, ArithmeticError):
        return "error"


def test_texts_are_read_as_postgresql_reads_them() -> None:
    assert len(ANSWERS) > 200
    for pattern, text, date, ms in (line.split("\t") for line in ANSWERS):
        found = (_or_error(_date, text, pattern), _or_error(read_moment, text, pattern))
        assert found == (date, ms), (pattern, text)


def test_a_view_and_an_interactive_query_read_the_same() -> None:
    rows = [line.split(" => ") for line in VALUES.strip().splitlines()]
    exprs = bound(*(text for text, _ in rows))
    assert [shown(v, e.type) for v, e in zip(evaluated(exprs), exprs, strict=True)] == [wanted for _, wanted in rows]
    world = SqlSession(Shape())
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY, s VARCHAR)")
        world.execute("INSERT INTO t VALUES (1, '05.02.24')")
        items = ", ".join(f"{e} AS x{i}" for i, (e, _) in enumerate([*rows, ("TO_DATE(s, 'DD MM YY')", "")]))
        world.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {items} FROM t")
        assert rendered(world.ask(f"SELECT {items} FROM t")) == rendered(world.ask("SELECT * FROM v"))
    finally:
        world.close()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("TO_DATE(s, 'DD.MM.RR')", "RR in the pattern"),
        ("TO_TIMESTAMP(s, 'YYYY TZ')", "only supported in to_char"),
        ("TO_DATE(s, 'DD TMMonth')", "the pattern TM"),
        ("TO_CHAR(ts, 'DDSP')", "the pattern SP"),
        ("TO_NUMBER(s, '9EEEE')", "not supported"),
    ],
)
def test_patterns_that_cannot_be_read_by_are_refused_by_name(call: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        bound(call)
