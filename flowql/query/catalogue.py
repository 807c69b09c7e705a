"""ksqlDB's functions of patterns in interactive queries: DuckDB has them with other arguments, or another syntax of patterns.

DuckDB calls the references of the catalogue, as functions of Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.pattern_calls import PatternFunction, function_over_columns
from flowql.compiler.functions.registry import QueryFailure, Reference, lookup
from flowql.compiler.plan.types import INT, STRING, SqlType
from flowql.runtime.batch import to_arrow, to_python

_LETTERS = {"s": STRING, "i": INT}
# Types of the arguments of each form, a letter for each.
_FORMS: Mapping[str, str] = {
    "regexp_extract": "ss ssi",
    "regexp_extract_all": "ss ssi",
    "regexp_replace": "sss",
    "regexp_split_to_array": "ss",
    "regexp_like": "ss",
}
# Forms that ksqlDB does not have stay DuckDB's: a macro of the name would hide them.
_OF_DUCKDB: Mapping[str, int] = {
    "regexp_extract": 4,
    "regexp_extract_all": 4,
    "regexp_replace": 4,
    "regexp_split_to_array": 3,
}


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of Python that DuckDB calls over columns. by: over the values of a row. over: over columns, if it has such a meaning."""

    key: str
    args: tuple[SqlType, ...]
    result: SqlType
    by: Reference
    over: PatternFunction | None

    def call(self, columns: Sequence[pa.Array]) -> pa.Array:
        with suppress(ValueError):  # the rows tell which one is too large
            if self.over is not None and not pc.any(self.over.failed(columns)).as_py():
                return self.over.column(columns)
        rows = zip(*(to_python(c, t) for c, t in zip(columns, self.args, strict=True)), strict=True)
        return to_arrow([self._value(row) for row in rows], self.result)

    def _value(self, row: Sequence[Any]) -> Any:
        if any(v is None for v in row):
            return None
        try:
            return self.by(*row)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise QueryFailure(str(error)) from error


@dataclass(frozen=True, slots=True)
class Offer:
    """The definitions that make a function callable: functions of Python, and the macro that calls them by the function's name."""

    functions: Sequence[PythonFunction]
    macro: str


def offers(names: frozenset[str]) -> Iterator[tuple[str, Offer]]:
    """The functions with these folded names that DuckDB must be given."""
    for name in sorted(names & _FORMS.keys()):
        functions, bodies = [], []
        function = lookup(name.upper())
        assert function is not None, name
        for form in _FORMS[name].split():
            r = function.resolve(tuple(_LETTERS[letter] for letter in form))
            key, parameters = f"flowql_{name}_{len(form)}", ", ".join(f"a{i}" for i in range(len(form)))
            over = function_over_columns(name.upper(), len(r.args))
            functions.append(PythonFunction(key, r.args, r.result, function.reference(r), over))
            bodies.append(f"({parameters}) AS {key}({parameters})")
        if name in _OF_DUCKDB:
            parameters = ", ".join(f"a{i}" for i in range(_OF_DUCKDB[name]))
            bodies.append(f"({parameters}) AS system.main.{name}({parameters})")
        yield name, Offer(functions, f"CREATE OR REPLACE MACRO {name}{', '.join(bodies)}")
