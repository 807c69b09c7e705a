"""Running a case: as operators of a deployed query, with rows before and after the view, beside DuckDB."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import duckdb
import pyarrow as pa

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.errors import CommandError
from flowql.runtime.errors import StatementFailed
from tests.slt.session import Shape, SqlSession
from tests.standard_views.check import difference
from tests.styles.cases import Case

Kind = Literal["right", "refused", "wrong", "internal"]
_MADE = re.compile(
    r"\s*CREATE\s+(?:MATERIALIZED\s+)?(VIEW|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\"[^\"]*\"|\w+)", re.IGNORECASE
)
_ASKED = re.compile(r"\s*\(*\s*(SELECT|VALUES|WITH|TABLE)\b", re.IGNORECASE)
_SETTINGS = (
    "SET integer_division = true",
    "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET TimeZone = 'UTC'",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case. reason: the error, or how the rows differ."""

    case: Case
    kind: Kind
    reason: str = ""


class _Wrong(Exception):
    """The product's rows are not DuckDB's."""


def check(case: Case, shape: Shape | None = None) -> Result:
    """DuckDB must know what the product accepts."""
    world = SqlSession(shape or Shape())
    try:
        with duckdb.connect(config={"threads": 1}) as reference:
            for setting in _SETTINGS:
                reference.execute(setting)
            _run(case, world, reference)
    except _Wrong as wrong:
        return Result(case, "wrong", str(wrong))
    except CompileError as error:
        (first, *_) = error.diagnostics
        return Result(case, "refused", f"{first.code}: {first.title}")
    except (CommandError, StatementFailed) as error:
        return Result(case, "refused", f"{error.code}: {getattr(error, 'title', error)}")
    except duckdb.Error as error:
        return Result(case, "wrong", f"accepted, and DuckDB does not answer: {error}")
    except Exception as error:
        return Result(case, "internal", f"{type(error).__name__}: {error}")
    finally:
        world.close()
    return Result(case, "right")


def _run(case: Case, world: SqlSession, reference: duckdb.DuckDBPyConnection) -> None:
    made: dict[str, str] = {}
    for step in case.steps:
        if _ASKED.match(step.sql):
            _compare(world.ask(step.sql), reference, step.reference, step.sql, ordered="ORDER BY" in step.sql.upper())
            continue
        world.execute(step.sql)
        if step.reference:
            reference.execute(step.reference)
        if match := _MADE.match(step.sql):
            made[match[2]] = match[1].upper()
    dropped = {s.sql.split()[-1] for s in case.steps if s.sql.upper().startswith("DROP")}
    for name in made:
        if name not in dropped:
            _compare(world.ask(f"SELECT * FROM {name}"), reference, f"SELECT * FROM {name}", name, ordered=False)


def _compare(answer: pa.Table, reference: duckdb.DuckDBPyConnection, sql: str, what: str, *, ordered: bool) -> None:
    asked = reference.execute(sql)
    names = [d[0] for d in asked.description or ()]
    expected = [tuple(_plain(v) for v in row) for row in asked.fetchall()]
    if len(names) != len(answer.column_names):
        raise _Wrong(f"{what} has the columns {answer.column_names}, not {names}")
    for name, own in zip(names, answer.column_names, strict=True):
        if name.isidentifier() and name.lower() != own.lower():
            raise _Wrong(f"{what} has the column {own}, not {name}")
    doubles = [str(d[1]) == "DOUBLE" for d in asked.description or ()]
    columns = [[_plain(v, double=d) for v in c.to_pylist()] for c, d in zip(answer.columns, doubles, strict=True)]
    rows = list(zip(*columns, strict=True))
    if found := difference(expected, rows):
        raise _Wrong(f"{what}:\n{found}")
    if ordered and (
        found := difference([(i, *r) for i, r in enumerate(expected)], [(i, *r) for i, r in enumerate(rows)])
    ):
        raise _Wrong(f"{what}, in another order:\n{found}")


def _plain(v: Any, *, double: bool = False) -> Any:
    """Structs as rows of their values; DECIMALs as doubles where DuckDB has no DECIMAL: an average."""
    if isinstance(v, dict):
        return tuple(map(_plain, v.values()))
    return float(v) if double and isinstance(v, Decimal) else v
