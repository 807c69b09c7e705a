"""PostgreSQL's catalogue: the tables that tools read about relations, columns and keys, in a DuckDB of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import duckdb
import pyarrow as pa

from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.pg.catalogue_rows import INFORMATION, Filled, described, filled, system_type, type_name
from flowql.pg.catalogue_sql import is_about_catalogue, label, translated
from flowql.pg.errors import PgError
from flowql.pg.portals import Rows
from flowql.pg.reading import Reading, Visible
from flowql.pg.settings import SessionSettings
from flowql.pg.statements import Statement
from flowql.pg.types import ALL, INT2, INT2VECTOR, NUMERIC, OID, OIDVECTOR, PgColumn, PgType, columns_of
from flowql.query.answer import Begun
from flowql.query.of_plan import OfPlan

MEMORY = "256MB"
_LOCKS = ("SET enable_external_access = false", "SET lock_configuration = true")
_DUCKDB = {
    **{
        "bool": "BOOLEAN",
        "int2": "SMALLINT",
        "int4": "INTEGER",
        "int8": "BIGINT",
        "oid": "UINTEGER",
        "float4": "FLOAT",
        "float8": "DOUBLE",
    },
    **{"timestamptz": "TIMESTAMPTZ", "bytea": "BLOB", "interval": "INTERVAL"},
}
# Types that statements cast to. Casts of strings to those of numbers of objects are looked up before.
_TYPES = {
    **dict.fromkeys(("regclass", "regtype", "regnamespace"), "UINTEGER"),
    **dict.fromkeys(("name", "regproc", "xid"), "VARCHAR"),
}
# The types of DuckDB that stand for vectors here, and for nothing else.
_VECTORS = {"int2vector": "USMALLINT[]", "oidvector": "UBIGINT[]"}
_OF_VECTORS = {pa.uint16(): (INT2, INT2VECTOR), pa.uint64(): (OID, OIDVECTOR)}
_IS_VECTOR = f"typeof(a) IN ({', '.join(repr(t) for t in _VECTORS.values())})"
_NULLS = {
    1: "pg_get_ruledef pg_get_triggerdef pg_get_functiondef pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments "
    "pg_get_partkeydef pg_get_statisticsobjdef_columns pg_tablespace_location obj_description pg_get_partition_constraintdef",
    2: "pg_get_ruledef pg_get_triggerdef obj_description shobj_description col_description pg_get_serial_sequence",
}
# `format` with up to two values: %s shows a value, %I a name, %L a literal.
_PRINTED = "replace(replace(f, '%I', '%s'), '%L', '%s')"


def _directed(place: int, value: str) -> str:
    directive = f"regexp_extract_all(f, '%([IsL])', 1)[{place}]"
    return f"CASE {directive} WHEN 'I' THEN quote_ident({value}) WHEN 'L' THEN quote_literal({value}) ELSE {value}::VARCHAR END"


# In macros, names of sub-queries begin with fq_: an argument that names a relation of its statement would mean theirs.
_FOUND = "(SELECT fq_d.definition FROM fq_definitions fq_d WHERE fq_d.oid = o::BIGINT)"
# Functions of the catalogue, by what DuckDB is to compute. Source of what they mean: PostgreSQL's documentation, "System Information Functions".
_MACROS = (
    *(
        f"{n}(v) AS v"
        for n in [
            "fq_current_user",
            "fq_session_user",
            "fq_current_role",
            "fq_current_database",
            "fq_current_catalog",
            "fq_current_schema",
            "fq_user",
        ]
    ),
    *(f"{n}(v) AS v" for n in ["fq_version", "fq_pg_backend_pid", "fq_current_setting", "fq_set_config"]),
    *(
        f"{n}(a) AS true"
        for n in [
            "pg_type_is_visible",
            "pg_function_is_visible",
            "pg_opclass_is_visible",
            "pg_collation_is_visible",
        ]
    ),
    *(f"{n}(a) AS false" for n in ["pg_relation_is_publishable", "pg_is_other_temp_schema"]),
    *(
        f"{n}() AS NULL"
        for n in [
            "inet_server_addr",
            "inet_client_addr",
            "inet_server_port",
            "inet_client_port",
            "pg_advisory_unlock_all",
            "pg_my_temp_schema",
        ]
    ),
    "pg_is_in_recovery() AS false",
    "pg_postmaster_start_time() AS now()",
    "txid_current() AS 1::BIGINT",
    *(
        f"{n}(a) AS 0::BIGINT, (a, b) AS 0::BIGINT"
        for n in ["pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size"]
    ),
    "pg_size_pretty(a) AS a || ' bytes'",
    *(
        f"{n}(a) AS true, (a, b) AS true, (a, b, c) AS true"
        for n in [
            "has_table_privilege",
            "has_schema_privilege",
            "has_database_privilege",
            "has_column_privilege",
            "has_function_privilege",
            "has_any_column_privilege",
            "pg_has_role",
        ]
    ),
    "pg_get_userbyid(a) AS 'flowql'",
    "pg_encoding_to_char(a) AS 'UTF8'",
    "pg_get_expr(a, b) AS a, (a, b, c) AS a",
    f"pg_get_viewdef(o) AS {_FOUND}, (o, b) AS {_FOUND}",
    f"pg_get_constraintdef(o) AS {_FOUND}, (o, b) AS {_FOUND}",
    f"pg_get_indexdef(o) AS {_FOUND}, (o, n, b) AS CASE WHEN n = 0 THEN {_FOUND} ELSE "
    "(SELECT fq_a.attname FROM pg_attribute fq_a WHERE fq_a.attrelid = o::BIGINT AND fq_a.attnum = n) END",
    f"array_upper(a, d) AS (len(a) - ({_IS_VECTOR})::INTEGER)::INTEGER",
    f"array_lower(a, d) AS 1 - ({_IS_VECTOR})::INTEGER",
    "current_schemas(b) AS ['pg_catalog', 'public']",
    "_pg_expandarray(a) AS unnest([{'x': a[n], 'n': n} for n in range(1, len(a) + 1)])",
    "quote_ident(s) AS CASE WHEN regexp_full_match(s, '[a-z_][a-z0-9_$]*') THEN s ELSE '\"' || replace(s, '\"', '\"\"') || '\"' END",
    f"pg_table_is_visible(o) AS coalesce((SELECT fq_c.relnamespace <> {INFORMATION} FROM pg_class fq_c WHERE fq_c.oid = o::BIGINT), false)",
    "to_regtype(s) AS (SELECT max(fq_t.oid) FROM fq_types fq_t WHERE fq_t.formatted = s OR fq_t.name = s)",
    f"generate_subscripts(a, d) AS unnest(range(1 - ({_IS_VECTOR})::INTEGER, len(a) + 1 - ({_IS_VECTOR})::INTEGER))",
    "pg_get_keywords() AS TABLE SELECT unnest(['analyze', 'ilike', 'limit', 'offset', 'returning', 'select']) AS word, 'R' AS catcode",
    "array_remove(a, v) AS list_filter(a, lambda e: e IS DISTINCT FROM v)",
    "pg_char_to_encoding(s) AS 6",
    "quote_literal(s) AS '''' || replace(s, '''', '''''') || ''''",
    'parse_ident(s) AS list_transform(regexp_extract_all(s, \'"[^"]*"|[^."]+\'), lambda e: CASE WHEN e[1] = \'"\' THEN e[2:-2] ELSE lower(e) END)',
    f"fq_format(f, a) AS printf({_PRINTED}, {_directed(1, 'a')}), (f, a, b) AS printf({_PRINTED}, {_directed(1, 'a')}, {_directed(2, 'b')})",
    "to_regclass(s) AS (SELECT max(fq_c.oid) FROM pg_class fq_c WHERE fq_c.relname = replace(replace(s, 'public.', ''), '\"', ''))",
    "fq_regclass(o) AS coalesce((SELECT fq_c.relname FROM pg_class fq_c WHERE fq_c.oid = o::BIGINT), o::VARCHAR)",
    "fq_regnamespace(o) AS coalesce((SELECT fq_n.nspname FROM pg_namespace fq_n WHERE fq_n.oid = o::BIGINT), o::VARCHAR)",
    "fq_regtype(o) AS coalesce((SELECT fq_t.formatted FROM fq_types fq_t WHERE fq_t.oid = o::BIGINT), o::VARCHAR)",
)
_FORMAT_TYPE = (
    f"format_type(t, m) AS CASE WHEN t = {NUMERIC.oid} AND m > 0 THEN 'numeric(' || ((m - 4) >> 16) || ',' || ((m - 4) & 65535) || ')' "
    "ELSE (SELECT fq_t.formatted FROM fq_types fq_t WHERE fq_t.oid = t::BIGINT) END"
)


class Catalogue:
    """The catalogue of the serving plan. A new plan gets a new catalogue. Any thread."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._lock = threading.Lock()  # guards the databases
        self._made: dict[
            tuple[str, Visible], tuple[Plan, _Database]
        ] = {}  # by the name by which clients connect, and what they see

    def has(self, statement: Statement, visible: Visible) -> bool:
        """Whether a statement is about the catalogue. visible: folded names of the relations that its client sees; None: all."""
        return (statement.is_read or statement.verb == "SHOW") and is_about_catalogue(
            statement, _TABLES, lambda: _names(self._plan(visible))
        )

    def rows(
        self,
        sql: str,
        settings: SessionSettings,
        formats: Sequence[int],
        begun: Begun = lambda _: None,
        pid: int = 0,
        visible: Visible = None,
    ) -> Rows:
        """The answer. visible: see `has`. Raises PgError."""
        database = self._database(settings.database, visible)
        text = translated(sql, database.filled.names, settings, pid)
        return Rows.of_table(*database.ask(text, begun), formats)

    def _plan(self, visible: Visible) -> Plan:
        with suppress(CommandError):  # nothing is deployed
            return self._reading.plan(visible)
        return _NOTHING

    def _database(self, name: str, visible: Visible) -> _Database:
        plan = self._plan(visible)
        with self._lock:
            known = self._made.get((name, visible))
            if known is None or known[0] is not plan:
                if len(self._made) >= DATABASES_MAX:
                    self._made.clear()
                self._made[name, visible] = known = plan, _Database(filled(plan, name))
            return known[1]


DATABASES_MAX = 8
SYSTEM_COLUMNS = {c: system_type(t) for d in described() for c, t in d.columns.items() if t in ("oid", "name", "text")}
_TABLES = frozenset(d.table for d in described() if d.table.startswith("pg_"))
_NOTHING = Plan()
_names = OfPlan(lambda plan: frozenset(s.name.casefold() for s in plan.sources))


class _Database:
    """The tables of one plan."""

    def __init__(self, found: Filled) -> None:
        self.filled = found
        self._root = duckdb.connect(":memory:", config={"threads": "1", "memory_limit": MEMORY, "temp_directory": ""})
        for known in described():
            types = {c: system_type(t) for c, t in known.columns.items()}
            columns = ", ".join(f'"{c}" {_duckdb_type(t)}' for c, t in types.items())
            self._root.execute(f'CREATE TABLE "{known.table}" ({columns})')
            if rows := found.rows.get(known.table):
                names = [c for c in known.columns if any(c in r for r in rows)]
                table = pa.table({c: pa.array([r.get(c) for r in rows]) for c in names})
                self._root.register("given", table)
                listed = ", ".join(f'"{c}"' for c in names)
                self._root.execute(f'INSERT INTO "{known.table}" ({listed}) SELECT {listed} FROM given')
                self._root.unregister("given")
        for name, of in _TYPES.items():
            self._root.execute(f'CREATE TYPE "{name}" AS {of}')
        self._root.execute("CREATE TABLE fq_definitions (oid BIGINT, definition VARCHAR)")
        if found.definitions:
            self._root.executemany("INSERT INTO fq_definitions VALUES (?, ?)", list(found.definitions.items()))
        self._root.execute("CREATE TABLE fq_types (oid BIGINT, formatted VARCHAR, name VARCHAR)")
        self._root.executemany("INSERT INTO fq_types VALUES (?, ?, ?)", [(t.oid, type_name(t), t.name) for t in ALL])
        self._make_macros()
        for statement in _LOCKS:
            self._root.execute(statement)

    def _make_macros(self) -> None:
        forms = dict[str, list[str]]()
        for macro in (*_MACROS, _FORMAT_TYPE):
            name, _, rest = macro.partition("(")
            forms.setdefault(name, []).append(f"({rest}")
        for count, names in _NULLS.items():
            parameters = ", ".join(f"a{n}" for n in range(count))
            for name in names.split():
                forms.setdefault(name, []).append(f"({parameters}) AS NULL::VARCHAR")
        for name, found in forms.items():
            self._root.execute(f"CREATE OR REPLACE MACRO {name}{', '.join(found)}")

    def ask(self, sql: str, begun: Callable[[Callable[[], None]], None]) -> tuple[pa.Table, list[PgColumn]]:
        """The rows, and the columns as PostgreSQL names them. Raises PgError."""
        connection = self._root.cursor()
        begun(connection.interrupt)
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise PgError("42501", "a query of the catalogue cannot read other relations")
            relation = connection.sql(sql)
            table = relation.to_arrow_table() if relation is not None else pa.table({})
        except duckdb.InterruptException as error:
            raise PgError("57014", "canceling statement due to user request") from error
        except duckdb.CatalogException as error:
            raise PgError("42P01" if "Table" in str(error) else "42883", _said(error)) from error
        except duckdb.ParserException as error:
            raise PgError("42601", _said(error)) from error
        except duckdb.BinderException as error:
            raise PgError("42703", _said(error)) from error
        except duckdb.Error as error:
            raise PgError("XX000", _said(error)) from error
        finally:
            connection.close()
        names = [label(n) for n in table.column_names]
        found = columns_of(table.schema)
        return table, [
            PgColumn(n, _of_vector(t, c.type)) for n, t, c in zip(names, table.schema.types, found, strict=True)
        ]


def _said(error: Exception) -> str:
    return str(error).splitlines()[0]


def _of_vector(t: pa.DataType, other: PgType) -> PgType:
    """The type of a vector or of one of its values."""
    if pa.types.is_list(t):
        return _OF_VECTORS[t.value_type][1] if t.value_type in _OF_VECTORS else other
    return _OF_VECTORS[t][0] if t in _OF_VECTORS else other


def _duckdb_type(t: object) -> str:
    if getattr(t, "name", "") in _VECTORS:
        return _VECTORS[getattr(t, "name", "")]
    element = getattr(t, "element", None)
    if element is not None:
        return f"{_DUCKDB.get(element.name, 'VARCHAR')}[]"
    return _DUCKDB.get(getattr(t, "name", ""), "VARCHAR")
