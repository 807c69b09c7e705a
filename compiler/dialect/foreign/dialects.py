"""The dialects that can be translated, as sqlglot reads them, and FlowQL's standard dialect, as sqlglot writes it."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, build_formatted_time
from sqlglot.dialects.materialize import Materialize
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.risingwave import RisingWave

from flowql.compiler.dialect.standard.words import NOT_NAMES

# Functions of FlowQL's standard dialect mean what PostgreSQL means by them; in these dialects, too.
AS_POSTGRES = ("postgres", "risingwave", "materialize")
# Names without quotes, and names with quotes, are compared without regard to case.
FOLDS_ALL = ("bigquery", "spark", "trino", "duckdb")


# sqlglot has classes for these functions of PostgreSQL. It keeps all other functions by name, and FlowQL knows the same names.
_CLASSES = ("AVG", "COUNT", "SUM", "MIN", "MAX", "COALESCE", "NULLIF", "GREATEST", "LEAST")


class PostgresSql(Postgres):
    """PostgreSQL's dialect, whose functions keep their names."""

    class Parser(Postgres.Parser):
        """Few functions are classes."""

        FUNCTIONS: ClassVar = {n: f for n, f in Postgres.Parser.FUNCTIONS.items() if n in _CLASSES}


class RisingWaveSql(RisingWave):
    """RisingWave's dialect, whose functions keep their names."""

    class Parser(RisingWave.Parser):
        """Few functions are classes."""

        FUNCTIONS: ClassVar = PostgresSql.Parser.FUNCTIONS


class MaterializeSql(Materialize):
    """Materialize's dialect, whose functions keep their names."""

    class Parser(Materialize.Parser):
        """Few functions are classes."""

        FUNCTIONS: ClassVar = PostgresSql.Parser.FUNCTIONS


class FlinkSql(RisingWave):
    """Flink SQL, near RisingWave's: back-ticks quote names, case counts, the smallest value is NULL."""

    NULL_ORDERING = "nulls_are_small"

    class Parser(RisingWave.Parser):
        """Functions that Flink and PostgreSQL have under one name with other arguments."""

        FUNCTIONS: ClassVar = {
            **RisingWave.Parser.FUNCTIONS,
            "TIMESTAMPDIFF": lambda args: exp.TimestampDiff(
                this=args[2], expression=args[1], unit=exp.var(args[0].name)
            ),
            "DATE_FORMAT": build_formatted_time(exp.TimeToStr, "hive"),
        }

    class Tokenizer(RisingWave.Tokenizer):
        """Back-ticks quote names, and double quotes nothing."""

        IDENTIFIERS: ClassVar = ["`"]


class FlowQLStandard(Postgres):
    """Writes what FlowQL's standard dialect has beyond PostgreSQL."""

    class Generator(Postgres.Generator):
        """TRY_CAST stays what it is."""

        TRANSFORMS: ClassVar = {
            **Postgres.Generator.TRANSFORMS,
            exp.TryCast: lambda self, e: f"TRY_CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})",
        }


_BY_NAME: dict[str, str | type[Dialect]] = {
    "snowflake": "snowflake", "bigquery": "bigquery", "spark": "spark", "trino": "trino", "risingwave": RisingWaveSql,
    "materialize": MaterializeSql, "flink": FlinkSql, "postgres": PostgresSql, "duckdb": "duckdb",
}  # fmt: skip
NAMES = tuple(_BY_NAME)


def dialect_of(name: str) -> Any:
    """Sqlglot's dialect. name: one of NAMES."""
    return Dialect.get_or_raise(_BY_NAME[name])


def written(tree: Any) -> str:
    """A translated tree as text of FlowQL's standard dialect."""
    return str(FlowQLStandard().generate(tree, pretty=True, copy=False))


def identifier(name: str) -> Any:
    """A name that means exactly `name` in FlowQL: quoted where it would fold or be a keyword."""
    plain = name.isascii() and name.isidentifier() and name == name.lower() and name.upper() not in NOT_NAMES
    return exp.Identifier(this=name, quoted=not plain)
