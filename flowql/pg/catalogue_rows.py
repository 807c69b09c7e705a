"""Rows of PostgreSQL's catalogue for a plan: schemas, relations, columns, keys and types."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.pg.settings import SERVER_FACTS, defaults
from flowql.pg.types import ALL, NAME, NUMERIC, PgType, pg_type

CATALOG, PUBLIC, INFORMATION = 11, 2200, 13_000  # schemas
OWNER, DATABASE, HEAP, BTREE, DEFAULT_COLLATION = 10, 5, 2, 403, 100
FIRST_OID = 16_384  # of what users make
Row = dict[str, Any]
_BEFORE_SELECT = re.compile(r"^CREATE\b.*?\bAS\s+(?=SELECT|WITH|VALUES|\()", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Described:
    """A table or view of the catalogue: columns by name, with their types. name: with its schema if that is not pg_catalog."""

    oid: int
    name: str
    kind: str
    columns: Mapping[str, str]

    @property
    def table(self) -> str:
        """How the database of the catalogue names it."""
        return self.name.replace(".", "_")


@cache
def described() -> tuple[Described, ...]:
    """All that there are in PostgreSQL 15."""
    text = resources.files("flowql.pg").joinpath("catalogue.txt").read_text("utf-8")
    return tuple(_described(line) for line in text.splitlines() if not line.startswith("#"))


def _described(line: str) -> Described:
    head, _, columns = line.partition(": ")
    oid, name, kind = head.split()
    pairs = (c.rsplit(" ", 1) for c in columns.split(", "))
    return Described(int(oid), name, kind, dict((n, t) for n, t in pairs))


@dataclass(slots=True)
class Filled:
    """rows: by table. definitions: of indexes, constraints and views, by OID. names: OIDs by the names of relations."""

    database: str
    rows: dict[str, list[Row]] = field(default_factory=dict)
    definitions: dict[int, str] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)


def filled(plan: Plan, database: str) -> Filled:
    """The catalogue of a plan. database: the name by which clients connect."""
    found = Filled(database)
    _fixed(found)
    _types(found)
    for known in described():
        _system_relation(found, known)
    sources = sorted((s for s in plan.sources if not s.is_hidden), key=lambda s: s.name)
    for source, oid in zip(sources, _oids([s.name for s in sources]), strict=True):
        _relation(found, plan, source, oid)
    return found


def _oids(names: Sequence[str]) -> Iterator[int]:
    """Numbers that stay the same while other relations come and go. An index has the number after its table's."""
    used = set[int]()
    for name in names:
        oid = FIRST_OID + 2 * (zlib.crc32(name.encode()) % (1 << 28))
        while oid in used:
            oid += 2
        used.add(oid)
        yield oid


def _fixed(f: Filled) -> None:
    for oid, name in ((CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION, "information_schema")):
        f.add("pg_namespace", oid=oid, nspname=name, nspowner=OWNER)
        f.add("information_schema_schemata", catalog_name=f.database, schema_name=name, schema_owner="flowql")
    f.add("pg_database", oid=DATABASE, datname=f.database, datdba=OWNER, encoding=6, datlocprovider="c", datistemplate=False, datallowconn=True, datconnlimit=-1, dattablespace=1663, datcollate="C", datctype="C")  # fmt: skip
    for name in ("pg_roles", "pg_authid"):
        f.add(name, oid=OWNER, rolname="flowql", rolsuper=False, rolinherit=True, rolcreaterole=False, rolcreatedb=False, rolcanlogin=True, rolreplication=False, rolconnlimit=-1, rolbypassrls=False)  # fmt: skip
    f.add(
        "pg_user",
        usename="flowql",
        usesysid=OWNER,
        usecreatedb=False,
        usesuper=False,
        userepl=False,
        usebypassrls=False,
    )
    f.add("pg_am", oid=HEAP, amname="heap", amtype="t")
    f.add("pg_am", oid=BTREE, amname="btree", amtype="i")
    f.add("pg_tablespace", oid=1663, spcname="pg_default", spcowner=OWNER)
    for oid, name in ((DEFAULT_COLLATION, "default"), (950, "C")):
        f.add(
            "pg_collation",
            oid=oid,
            collname=name,
            collnamespace=CATALOG,
            collowner=OWNER,
            collprovider="d",
            collisdeterministic=True,
            collencoding=-1,
        )
    f.add("information_schema_information_schema_catalog_name", catalog_name=f.database)
    for name, value in {**defaults(), **SERVER_FACTS}.items():
        f.add("pg_settings", name=name, setting=value, category="", short_desc="", context="user", vartype="string", source="default", boot_val=value, reset_val=value, pending_restart=False)  # fmt: skip
    f.add("pg_language", oid=14, lanname="sql", lanowner=OWNER, lanispl=False, lanpltrusted=True)
    f.add(
        "pg_extension",
        oid=13_563,
        extname="plpgsql",
        extowner=OWNER,
        extnamespace=CATALOG,
        extrelocatable=False,
        extversion="1.0",
    )


_FUNCTIONS = {"input": "in", "output": "out", "receive": "recv", "send": "send"}


def _types(f: Filled) -> None:
    for t in ALL:
        element = t.element
        function = t.name if element is None or t.is_vector else "array_"
        f.add(
            "pg_type",
            oid=t.oid,
            typname=t.name,
            typnamespace=CATALOG,
            typowner=OWNER,
            typlen=t.size,
            typbyval=0 < t.size <= 8,
            typtype="p" if t.category in "XP" else "b",
            typcategory=t.category,
            typispreferred=t.name in ("bool", "text", "float8", "timestamptz", "interval"),
            typisdefined=True,
            typdelim=",",
            typrelid=0,
            typelem=0 if element is None else element.oid,
            typarray=t.array,
            **{f"typ{what}": f"{function}{short}" for what, short in _FUNCTIONS.items()},
            typnotnull=False,
            typbasetype=0,
            typtypmod=-1,
            typndims=0,
            typcollation=_collation(t),
            typalign="i",
            typstorage="p" if t.size > 0 else "x",
        )


def _collation(t: PgType) -> int:
    return DEFAULT_COLLATION if (t.element or t).category == "S" and t is not NAME else 0


def _class(f: Filled, oid: int, name: str, **row: Any) -> None:
    usual = {
        **dict.fromkeys(("reltype", "reloftype", "relfilenode", "reltablespace", "reltoastrelid", "relpages", "relallvisible", "relchecks"), 0),
        **dict.fromkeys(("relisshared", "relhasrules", "relhastriggers", "relhassubclass", "relrowsecurity", "relforcerowsecurity", "relispartition"), False),
        **{"relowner": OWNER, "relam": HEAP, "reltuples": -1.0, "relhasindex": False, "relpersistence": "p", "relispopulated": True, "relreplident": "d", "relrewrite": 0},
    }  # fmt: skip
    f.add("pg_class", **{**usual, "oid": oid, "relname": name, **row})


def _attribute(f: Filled, oid: int, number: int, name: str, t: PgType, **row: Any) -> None:
    usual = {
        **{"attstattarget": -1, "attcacheoff": -1, "attndims": 1 if t.element else 0, "attbyval": 0 < t.size <= 8, "attalign": "i", "attcompression": ""},
        **{"attnotnull": False, "atthasdef": False, "atthasmissing": False, "attidentity": "", "attgenerated": "", "attisdropped": False},
        **{"attislocal": True, "attinhcount": 0, "attcollation": _collation(t)},
    }  # fmt: skip
    storage = "p" if t.size > 0 else "m" if t.name == "numeric" else "x"
    shown = {
        "attrelid": oid,
        "attname": name,
        "atttypid": t.oid,
        "attlen": t.size,
        "attnum": number,
        "atttypmod": t.modifier,
        "attstorage": storage,
    }
    f.add("pg_attribute", **{**usual, **shown, **row})


def _system_relation(f: Filled, known: Described) -> None:
    schema = INFORMATION if "." in known.name else CATALOG
    name = known.name.rpartition(".")[2]
    _class(f, known.oid, name, relnamespace=schema, relkind=known.kind, relnatts=len(known.columns))
    f.names.setdefault(f"{'information_schema' if schema == INFORMATION else 'pg_catalog'}.{name}", known.oid)
    if schema == CATALOG:
        f.names[name] = known.oid
    for number, (column, written) in enumerate(known.columns.items(), 1):
        _attribute(f, known.oid, number, column, system_type(written))


@cache
def _by_name() -> dict[str, PgType]:
    return {t.name: t for t in ALL}


def system_type(written: str) -> PgType:
    """The type of a column of the catalogue, as near as there is one here."""
    types = _by_name()
    if written.endswith("[]"):
        return types.get(f"_{_SIMPLER.get(written[:-2], written[:-2])}", types["_text"])
    return types.get(_SIMPLER.get(written, written), types["text"])


_SIMPLER = {
    **{
        "sql_identifier": "name",
        "cardinal_number": "int4",
        "time_stamp": "timestamptz",
        "smallint": "int2",
        "real": "float4",
    },
    **{"regtype": "oid", "xid": "oid", '"char"': "char"},
}


def _relation(f: Filled, plan: Plan, source: SourceDef, oid: int) -> None:
    query = plan.by_id.get(source.query or "")
    is_table, fields = query is None, list(source.shown)
    names = [x.name for x in fields]
    key = [x.name for x in source.schema.key if x.name in names] if source.kind == "table" else []
    not_null = set(source.rules.not_null if source.rules is not None else ()) | (set(key) if is_table else set())
    f.names[f"public.{source.name}"] = f.names[source.name] = oid
    _class(
        f,
        oid,
        source.name,
        relnamespace=PUBLIC,
        relkind="r" if is_table else "m",
        relnatts=len(fields),
        relhasindex=bool(key),
        reltype=0,
    )
    f.add("information_schema_tables", table_catalog=f.database, table_schema="public", table_name=source.name, table_type="BASE TABLE" if is_table else "VIEW", is_insertable_into="YES" if is_table else "NO", is_typed="NO")  # fmt: skip
    identity = source.rules.numbered if source.rules is not None else None
    for number, x in enumerate(fields, 1):
        t = pg_type(x.type)
        identified = identity is not None and identity[0] == x.name
        letter = ("a" if identity is not None and identity[1] == "always" else "d") if identified else ""
        _attribute(f, oid, number, x.name, t, attnotnull=x.name in not_null or identified, attidentity=letter)
        _information(f, source.name, number, x.name, t, is_nullable=x.name not in not_null, identity=letter)
    if is_table:
        f.add(
            "pg_tables",
            schemaname="public",
            tablename=source.name,
            tableowner="flowql",
            hasindexes=bool(key),
            hasrules=False,
            hastriggers=False,
            rowsecurity=False,
        )
    else:
        text = _BEFORE_SELECT.sub("", query.sql if query is not None else "")
        f.definitions[oid] = text
        f.add(
            "pg_matviews",
            schemaname="public",
            matviewname=source.name,
            matviewowner="flowql",
            hasindexes=bool(key),
            ispopulated=True,
            definition=text,
        )
        f.add("information_schema_views", table_catalog=f.database, table_schema="public", table_name=source.name, view_definition=text, check_option="NONE", is_updatable="NO", is_insertable_into="NO")  # fmt: skip
    if key:
        _key(f, source.name, oid, key, names, is_primary=is_table)


def _information(f: Filled, table: str, number: int, name: str, t: PgType, *, is_nullable: bool, identity: str) -> None:
    radix = {
        "int2": (16, 2, 0),
        "int4": (32, 2, 0),
        "int8": (64, 2, 0),
        "float4": (24, 2, None),
        "float8": (53, 2, None),
    }.get(t.name)
    if t.name == NUMERIC.name and t.modifier > 0:
        radix = (t.modifier - 4) >> 16, 10, (t.modifier - 4) & 0xFFFF
    precision, base, scale = radix or (None, 10 if t.name == NUMERIC.name else None, None)
    f.add(
        "information_schema_columns",
        table_catalog=f.database,
        table_schema="public",
        table_name=table,
        column_name=name,
        ordinal_position=number,
        is_nullable="YES" if is_nullable else "NO",
        data_type="ARRAY" if t.element is not None else type_name(t),
        numeric_precision=precision,
        numeric_precision_radix=base,
        numeric_scale=scale,
        datetime_precision=6
        if t.name in ("time", "timestamp", "timestamptz", "interval")
        else 0
        if t.name == "date"
        else None,
        udt_catalog=f.database,
        udt_schema="pg_catalog",
        udt_name=t.name,
        dtd_identifier=str(number),
        is_self_referencing="NO",
        is_identity="YES" if identity else "NO",
        identity_generation={"a": "ALWAYS", "d": "BY DEFAULT"}.get(identity),
        is_generated="NEVER",
        is_updatable="YES",
    )


def _key(f: Filled, table: str, oid: int, key: Sequence[str], names: Sequence[str], *, is_primary: bool) -> None:
    """A primary key of a table, and of a view an index whose values are unique."""
    name, numbers = f"{table}_{'pkey' if is_primary else 'key'}", [names.index(k) + 1 for k in key]
    index, constraint, columns = oid + 1, oid + 1, ", ".join(map(quoted, key))
    _class(f, index, name, relnamespace=PUBLIC, relkind="i", relam=BTREE, relnatts=len(key), relreplident="n")
    definition = f"CREATE UNIQUE INDEX {quoted(name)} ON public.{quoted(table)} USING btree ({columns})"
    f.definitions[index] = definition
    f.names[name] = f.names[f"public.{name}"] = index
    f.add("pg_indexes", schemaname="public", tablename=table, indexname=name, indexdef=definition)
    f.add(
        "pg_index",
        **{"indexrelid": index, "indrelid": oid, "indnatts": len(key), "indnkeyatts": len(key), "indisunique": True, "indnullsnotdistinct": False},
        **{"indisprimary": is_primary, "indisexclusion": False, "indimmediate": True, "indisclustered": False, "indisvalid": True, "indcheckxmin": False},
        **{"indisready": True, "indislive": True, "indisreplident": False, "indkey": numbers, "indcollation": [0] * len(key), "indclass": [0] * len(key), "indoption": [0] * len(key)},
    )  # fmt: skip
    by_name = {r["attname"]: r for r in f.rows["pg_attribute"] if r["attrelid"] == oid}
    types = _by_oid()
    for number, k in enumerate(key, 1):
        _attribute(f, index, number, k, types[by_name[k]["atttypid"]])
    if not is_primary:
        return
    f.definitions[constraint + (1 << 31)] = f"PRIMARY KEY ({columns})"
    f.add(
        "pg_constraint",
        **{"oid": constraint + (1 << 31), "conname": name, "connamespace": PUBLIC, "contype": "p", "condeferrable": False, "condeferred": False, "convalidated": True},
        **{"conrelid": oid, "contypid": 0, "conindid": index, "conparentid": 0, "confrelid": 0, "confupdtype": " ", "confdeltype": " ", "confmatchtype": " "},
        **{"conislocal": True, "coninhcount": 0, "connoinherit": True, "conkey": numbers},
    )  # fmt: skip
    place = {
        "constraint_catalog": f.database,
        "constraint_schema": "public",
        "constraint_name": name,
        "table_catalog": f.database,
        "table_schema": "public",
        "table_name": table,
    }
    f.add(
        "information_schema_table_constraints",
        **place,
        constraint_type="PRIMARY KEY",
        is_deferrable="NO",
        initially_deferred="NO",
        enforced="YES",
    )
    for number, k in enumerate(key, 1):
        f.add("information_schema_key_column_usage", **place, column_name=k, ordinal_position=number)
        f.add("information_schema_constraint_column_usage", **place, column_name=k)


@cache
def _by_oid() -> dict[int, PgType]:
    return {t.oid: t for t in ALL}


def quoted(name: str) -> str:
    """As an identifier, in quotes where it needs them."""
    plain = name.isidentifier() and name.isascii() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'


_LONG = {
    **{"bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real", "float8": "double precision", "varchar": "character varying"},
    **{"bpchar": "character", "char": '"char"', "time": "time without time zone", "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"},
}  # fmt: skip


def type_name(t: PgType) -> str:
    """As `format_type` gives it, without a modifier."""
    return f"{type_name(t.element)}[]" if t.element is not None and not t.is_vector else _LONG.get(t.name, t.name)
