"""Columns of JSON and CSV files that are in the names of folders (`day=2024-01-01`), in Spark's Python workers. No pyspark.

Spark would guess their types, and a text `02` would be the number 2. Parquet files have types, so theirs are Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote, urlparse

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind
from flowql.runtime.spark.files_decode import boolean
from flowql.runtime.spark.settings import TopicFiles

_NULL = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = date(1970, 1, 1)
_PART = re.compile(r" behind byte [0-9]+$")  # of a file that is read in several
_OBJECT, _EMPTY, _END = r"^\s*\{.*\}\s*$", r"^\s*\{\s*\}\s*$", r"\s*\}\s*$"


@dataclass(frozen=True, slots=True)
class Folders:
    """Texts of declared columns, one per file, and the file of each row by its place among them."""

    columns: Mapping[str, Sequence[str | None]]
    of_rows: pa.Array

    def column(self, name: str) -> pa.Array:
        """The texts of a column, one per row."""
        return pa.array(self.columns[name], pa.string()).take(self.of_rows)


def folders_of(source: SourceDef, files: TopicFiles, paths: pa.Array) -> Folders:
    """The declared columns that folders of some file name. paths: the file of each row, as a URI."""
    told = paths.dictionary_encode()
    root = _root(files)
    found = [_values(path, root) for path in told.dictionary.to_pylist()]
    columns: dict[str, Sequence[str | None]] = {}
    for f in source.schema:
        name = f.name.upper()
        if any(name in values for values in found):
            texts = [values.get(name) for values in found]
            columns[f.name] = [_days(x) for x in texts] if f.type.kind is Kind.DATE else texts
    return Folders(columns, told.indices)


def json_lines(lines: pa.Array, folders: Folders, booleans: frozenset[str]) -> pa.Array:
    """Documents with the columns of folders behind their own; what is no object stays as it is."""
    if not folders.columns:
        return lines
    named = (
        {n: boolean(x) if n in booleans else x for n, x in zip(folders.columns, row, strict=True)}
        for row in zip(*folders.columns.values(), strict=True)
    )
    tails = pa.array([orjson.dumps(values)[1:] for values in named], pa.binary()).take(folders.of_rows)
    nothing = pa.scalar(b"", pa.binary())
    between = pc.if_else(pc.match_substring_regex(lines, _EMPTY), nothing, pa.scalar(b",", pa.binary()))
    body = pc.replace_substring_regex(lines, _END, "")
    made = pc.binary_join_element_wise(body, between, tails, nothing)
    return pc.if_else(pc.match_substring_regex(lines, _OBJECT), made, lines)


def _root(files: TopicFiles) -> str:
    """The path of the folder under which folders are columns."""
    path = files.options.get("basePath", files.path)
    path = urlparse(path).path if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path
    return re.split(r"[^/]*[*?\[{]", path, maxsplit=1)[0].rstrip("/")


def _values(path: str, root: str) -> dict[str, str | None]:
    """Name in upper case -> value of the folders of a file below the root."""
    found = unquote(urlparse(_PART.sub("", path)).path)
    below = found.removeprefix(root) if found.startswith(f"{root}/") else found
    pairs = (part.split("=", 1) for part in below.split("/")[:-1] if "=" in part)
    return {unquote(n).upper(): None if v == _NULL else unquote(v) for n, v in pairs}


def _days(text: str | None) -> str | None:
    """A date as JSON documents have it: days since 1970. What is no date stays, and is told by the decoder."""
    if text is None:
        return None
    try:
        return str((date.fromisoformat(text) - _EPOCH).days)
    except ValueError:
        return text
