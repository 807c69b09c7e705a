"""A project over DataFrames, for notebooks and jobs that have a Spark session: `frames`. Needs the extra `spark`.

Nothing here makes, configures or stops a session: what is read, written and cached is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics.diagnostic import CompileError
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from runtime.spark.frames.relation import TableRows

if TYPE_CHECKING:
    from compiler.plan.topology import Plan
    from runtime.spark.frames.lower import Frame, Results, Sources

__all__ = ["TableRows", "faults", "frames"]
_NO_TABLES: Mapping[str, TableRows] = {}
_NO_VARIABLES: Mapping[str, str] = {}


def frames(
    project: str | Path,
    sources: Sources,
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Results:
    """The results of a project's queries by name, over batch frames of what it reads, by name.

    project: a folder in the project, or its `flowql.yaml`. What the frames must have, what results have and what complete history
    means is said by `runtime.spark.frames.lower.lower`.

        >>> results = frames("pipelines/shop", {"ORDERS": spark.read.parquet("lake/orders")})  # doctest: +SKIP
        >>> results["SPENT"].write.parquet("lake/spent")  # doctest: +SKIP

    Raises CompileError with all mistakes of files and SQL, SparkUnsupported and FrameUnfit as `lower`.
    """
    from runtime.spark.frames.lower import lower

    return lower(_plan(project, target, variables), sources, tables=tables)


def faults(
    project: str | Path,
    sources: Sources,
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Frame:
    """What `frames` leaves out of these frames, and where it has to choose: a row of counts per frame.

    Columns: SOURCE, ROWS, BAD_TIMES and NO_KEY (rows that are left out), TIES (keys of a table that have several values at one time, of
    which the greatest counts).

        >>> faults("pipelines/shop", {"ORDERS": spark.read.parquet("lake/orders")}).show()  # doctest: +SKIP
    """
    from runtime.spark.frames.faults import faults as counted

    return counted(_plan(project, target, variables), sources, tables)


def _plan(project: str | Path, target: str | None, variables: Mapping[str, str]) -> Plan:
    compiled = compile_sources(load_project(Path(project), target=target, variables=variables))
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    return compiled.plan
