"""The answer of an interactive query, as Arrow, pandas, polars, DuckDB or rows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowql.errors import CommandError
from flowql.query.errors import APART, COVERAGE, MISSING, MOMENTS, SEQUENCE, STANDBY, TICK
from flowql.query.far_times import far_time

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

SHOWN_ROWS = 20  # in a notebook


class Result:
    """The rows of a query as of one commit, in memory.

    Iterate it for rows as dicts: DECIMAL as `Decimal`, DATE and TIMESTAMP as `date` and `datetime`.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches():
            yield from _rows(batch)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        names: list[str] = self._table.column_names
        return names

    @property
    def commit(self) -> int | None:
        """The commit's number; None without state."""
        found = self._said(SEQUENCE)
        return int(found) if found else None

    @property
    def tick(self) -> str:
        """The tick of the answer, if the query requested one."""
        return self._said(TICK)

    @property
    def note(self) -> str:
        """Missing partitions, standby copies, differing commits; else empty."""
        return "; ".join(p for p in map(self._said, (COVERAGE, MISSING, STANDBY, APART, MOMENTS)) if p)

    def one(self) -> Any:
        """The value of a single row and column; else ValueError."""
        if (shape := (self._table.num_rows, self._table.num_columns)) != (1, 1):
            raise ValueError(f"the answer has {shape[0]:,} rows and {shape[1]} columns, not one of each")
        try:
            return self._table.column(0)[0].as_py()
        except OverflowError as error:
            raise far_time() from error

    def arrow(self) -> pa.Table:
        """An Arrow table, without a copy."""
        return self._table

    def df(self) -> pandas.DataFrame:
        """A pandas frame; pandas must be installed."""
        _need("pandas", "df()")
        return self._table.to_pandas()

    def pl(self) -> polars.DataFrame:
        """A polars frame; polars must be installed."""
        _need("polars", "pl()")
        import polars

        found = polars.from_arrow(self._table)
        assert isinstance(found, polars.DataFrame)
        return found

    def rel(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A relation of a DuckDB connection (DuckDB's default connection if None)."""
        import duckdb

        return duckdb.from_arrow(self._table) if connection is None else connection.from_arrow(self._table)

    def __repr__(self) -> str:
        return f"<flowql.Result: {len(self):,} {'row' if len(self) == 1 else 'rows'} of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The first rows as HTML, for notebooks."""
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)
        rows = (
            "".join(f"<td>{'NULL' if v is None else escape(str(v))}</td>" for v in row.values())
            for row in _rows(self._table.slice(0, SHOWN_ROWS))
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f"<p>{SHOWN_ROWS} of {len(self):,} rows</p>" if len(self) > SHOWN_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _said(self, key: bytes) -> str:
        return (self._table.schema.metadata or {}).get(key, b"").decode()


def _rows(data: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = data.to_pylist(maps_as_pydicts="strict")
    except OverflowError as error:
        raise far_time() from error
    return found


def _need(package: str, method: str) -> None:
    """Raises CommandError if an optional package is missing, because an import inside of Arrow would not name the method."""
    if find_spec(package) is None:
        raise CommandError(f"{method} needs {package}, which is not installed: pip install {package}")
