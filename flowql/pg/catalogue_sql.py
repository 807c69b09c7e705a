"""Statements about PostgreSQL's catalogue in the words of DuckDB, which answers them: where its grammar or its meaning differs, words are changed.

DuckDB has PostgreSQL's grammar for the most part. Its own `pg_catalog` lacks columns that tools read, so the tables are ours, in its main schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache

from flowql.pg.catalogue_rows import CATALOG, INFORMATION, PUBLIC, described
from flowql.pg.errors import PgError
from flowql.pg.parameters import items_of
from flowql.pg.settings import SessionSettings, version_text
from flowql.pg.statements import Statement, Word, split

SCHEMAS = frozenset(("pg_catalog", "information_schema"))
# Functions and words that tell about the session or the catalogue; a statement that has one and names no relation is about the catalogue.
_OWN = frozenset(
    (
        *(
            "version",
            "current_schema",
            "current_schemas",
            "current_database",
            "current_catalog",
            "current_user",
            "session_user",
            "current_role",
        ),
        *(
            "current_setting",
            "set_config",
            "obj_description",
            "col_description",
            "shobj_description",
            "format_type",
            "inet_server_addr",
            "to_regclass",
        ),
        *(
            "has_table_privilege",
            "has_schema_privilege",
            "has_database_privilege",
            "txid_current",
            "quote_ident",
            "array_upper",
        ),
    )
)
_WORDS = frozenset(
    ("current_schema", "current_catalog", "current_user", "session_user", "current_role", "current_database")
)
_OF_FLOWQL = frozenset(("pg_typeof",))
_TYPES = {
    **{
        "oid": "UINTEGER",
        "name": "VARCHAR",
        "regproc": "VARCHAR",
        "char": "VARCHAR",
        "xid": "VARCHAR",
        "cid": "VARCHAR",
        "bpchar": "VARCHAR",
    },
    **{
        "inet": "VARCHAR",
        "_text": "VARCHAR[]",
        "information_schema.sql_identifier": "VARCHAR",
        "anyarray": "VARCHAR",
        "aclitem": "VARCHAR",
    },
}
_LOOKED_UP = {"regclass": "fq_regclass", "regtype": "fq_regtype", "regnamespace": "fq_regnamespace"}
_OF_DUCKDB = ("duckdb_", "pragma_", "sqlite_", "read_", "getenv", "getvariable")  # it tells about the process
_RENAMED = {"json_build_object": "json_object", "jsonb_build_object": "json_object", "format": "fq_format"}
# Functions in FROM whose alias also names their one column, and the beginning of an expression in DuckDB that gives the same rows.
_IN_FROM = {"string_to_array": "string_to_array", "generate_series": "unnest(generate_series", "unnest": "unnest"}
_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "ON")
_JOINS = ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL")
_AFTER_TABLE = (*_CLAUSES, *_JOINS, "OFFSET", "FETCH", "INTERSECT", "EXCEPT")
_SCHEMA_NUMBERS = {"pg_catalog": CATALOG, "public": PUBLIC, "information_schema": INFORMATION}
_LABEL = re.compile(r'(?:main\.|"?main"?\.)?"?(\w+)"?\(.*\)', re.DOTALL)
_SELECTED = re.compile(r"\(SELECT (.+?) FROM ")
_COLUMN = re.compile(r'(?:"?\w+"?\.)*"?([^\W\d]\w*)"?')
_OF_EXPRESSIONS = frozenset("'()=+")
Names = Mapping[str, int]


def is_about_catalogue(statement: Statement, tables: Collection[str], relations: Callable[[], frozenset[str]]) -> bool:
    """tables: those of the catalogue. relations: gives the folded names of those that are deployed."""
    words = statement.words
    called = {
        w.name
        for n, w in enumerate(words)
        if w.name is not None and n + 1 < len(words) and words[n + 1].text in ("(", ".")
    }
    if called & SCHEMAS:
        return True
    names = statement.names
    if read := {n for n in names if n in tables}:
        return not read & relations()
    told = any(n.startswith("pg_") or n in _OWN for n in called if n is not None and n not in _OF_FLOWQL) or bool(
        names & _WORDS
    )
    return told and "FROM" not in statement.uppers


def translated(sql: str, names: Names, settings: SessionSettings, pid: int) -> str:
    """names: OIDs of relations by name. Raises PgError."""
    statements = split(sql)
    if len(statements) != 1:
        raise PgError("42601", "one statement is expected")
    return _Translation(statements[0], names, settings, pid).text()


class _Translation:
    """Reads words from left to right; `_parts` has what DuckDB gets."""

    def __init__(self, statement: Statement, names: Names, settings: SessionSettings, pid: int) -> None:
        self._words, self._names, self._settings, self._pid = statement.words, names, settings, pid
        self._parts: list[str] = []
        self._at = 0
        self._clauses = [""]  # the clause at each depth of parentheses

    def text(self) -> str:
        while self._at < len(self._words):
            self._step()
        return " ".join(self._parts)

    def _upper(self, ahead: int) -> str:
        at = self._at + ahead
        return self._words[at].upper if at < len(self._words) else ""

    def _name(self, ahead: int) -> str | None:
        at = self._at + ahead
        return self._words[at].name if at < len(self._words) else None

    def _word(self, ahead: int) -> str:
        """The kind of a word."""
        at = self._at + ahead
        return self._words[at].kind if at < len(self._words) else ""

    def _put(self, text: str, used: int) -> None:
        self._parts.append(text)
        self._at += used

    def _step(self) -> None:
        word = self._words[self._at]
        self._follow(word)
        if word.upper == "OPERATOR" and self._upper(1) == "(":
            end = next(n for n in range(self._at, len(self._words)) if self._words[n].text == ")")
            self._operator(self._words[end - 1].text, end + 1 - self._at)
        elif word.upper == "CAST" and self._upper(1) == "(" and self._word(2) == "string" and self._upper(3) == "AS":
            ahead = 6 if self._upper(5) == "." else 4
            name = self._name(ahead) or ""
            if name in _LOOKED_UP:
                self._put(f"{self._number(name, self._words[self._at + 2].value)}::UINTEGER", ahead + 2)
            else:
                self._plain()
        elif word.upper == "COLLATE":
            self._at += 4 if self._upper(2) == "." else 2
        elif word.text in ("~", "!~", "~*", "!~*"):
            self._operator(word.text, 1)
        elif word.upper == "::":
            self._cast()
        elif self._name(0) in SCHEMAS and self._upper(1) == ".":
            prefix = "" if self._name(0) == "pg_catalog" else "information_schema_"
            inner = self._name(2) or ""
            if prefix and self._upper(3) == "(":
                prefix = ""
            if not prefix:
                self._at += 2
                self._plain()
            else:
                self._put(f'"{prefix}{inner}"', 3)
        else:
            self._plain()

    def _follow(self, word: Word) -> None:
        """Tracks the clause that a word is in."""
        if word.text == "(":
            self._clauses.append("")
        elif word.text == ")" and len(self._clauses) > 1:
            self._clauses.pop()
        elif word.upper == "JOIN":
            self._clauses[-1] = "FROM"
        elif word.kind == "word" and word.upper in _CLAUSES:
            self._clauses[-1] = word.upper

    def _is_table(self) -> bool:
        """Whether a function that is called here is a table of FROM."""
        before = self._parts[-1].upper() if self._parts else ""
        return self._clauses[-1] == "FROM" and before in ("FROM", ",", "JOIN", "LATERAL")

    def _table_function(self, name: str) -> None:
        """`f(...) AS a` in FROM as `(SELECT f(...) AS a) AS a`."""
        self._put(f"(SELECT {_IN_FROM[name]}(", 2)
        self._clauses.append("")
        depth = len(self._clauses)
        while self._at < len(self._words) and len(self._clauses) >= depth:
            self._step()
        if "(" in _IN_FROM[name]:
            self._parts.append(")")
        self._at += self._upper(0) == "AS"
        alias = name
        if self._name(0) is not None and self._upper(0) not in _AFTER_TABLE:
            alias = self._words[self._at].text
            self._at += 1
        self._parts.append(f"AS {alias}) AS {alias}")

    def _plain(self) -> None:
        word = self._words[self._at]
        if (word.name or "").startswith(_OF_DUCKDB):
            raise PgError("42501", f"{word.text} is not of the catalogue", position=word.start + 1)
        name, called = self._name(0), self._upper(1) == "("
        if name in _vectors() and self._upper(1) == "[":  # their first place is 0
            self._put(f"{word.text}[1 +", 2)
            return
        if (
            word.kind == "word"
            and name is not None
            and name in _CONSTANT
            and not (self._parts and self._parts[-1] in (".", "AS"))
        ):
            value = _CONSTANT[name](self._settings, self._pid)
            used = 3 if called and self._upper(2) == ")" else 1
            self._put(f"fq_{name}({value})", used)
        elif called and name in ("current_setting", "set_config"):
            self._setting(name)
        elif called and name in _IN_FROM and self._is_table():
            self._table_function(name)
        elif called and name in _RENAMED:
            self._put(_RENAMED[name], 1)
        else:
            self._put(word.text, 1)

    def _setting(self, name: str) -> None:
        end = next((n for n in range(self._at, len(self._words)) if self._words[n].text == ")"), len(self._words))
        given = [
            w
            for w in self._words[self._at + 2 : end]
            if w.text != "," and w.text not in ("::",) and w.name not in ("text", "varchar", "pg_catalog")
        ]
        if not given or any(w.kind not in ("string", "word") for w in given):
            raise PgError("0A000", f"{name} takes only constants")
        try:
            if name == "set_config":
                local = given[-1].upper == "TRUE"
                self._settings.set(given[0].value, given[1].value, local=local)
                ends_at_once = local and not self._settings.in_transaction
                value = given[1].value if ends_at_once else self._settings.get(given[0].value)
            else:
                value = self._settings.get(given[0].value)
        except PgError:
            if name == "set_config" or len(given) < 2 or given[1].upper != "TRUE":
                raise
            value = None
        self._put(f"fq_{name}({_literal(value)})", end + 1 - self._at)

    def _operator(self, operator: str, used: int) -> None:
        """DuckDB's `~` wants the whole string to match. Its patterns are those of RE2."""
        if operator not in ("~", "!~", "~*", "!~*"):
            self._put(operator, used)
            return
        at = self._at + used
        pattern = self._words[at] if at < len(self._words) else None
        if pattern is None or pattern.kind not in ("string", "escaped"):
            self._put(operator.replace("*", ""), used)
            return
        flags = "(?is)" if "*" in operator else "(?s)"
        prefix = "E" if pattern.kind == "escaped" else ""
        self._put(operator.replace("*", ""), used)
        self._put(f"{prefix}'{flags}.*(?:{pattern.text[len(prefix) + 1 : -1]}).*'", 1)

    def _cast(self) -> None:
        """`::type`. Casts to regclass and the like look a name or a number up."""
        ahead = 3 if self._name(1) in SCHEMAS and self._upper(2) == "." else 1
        name = self._name(ahead) or ""
        if self._parts[-1].startswith("'{") and self._upper(ahead + 1) == "[":
            items = items_of(self._parts[-1][1:-1].replace("''", "'"))
            self._parts[-1] = f"[{', '.join(map(_literal, items))}]"
        if name in _LOOKED_UP:
            self._looked_up(name, ahead + 1)
        elif name in _TYPES:
            self._parts.append(f"::{_TYPES[name]}")
            self._at += ahead + 1
        else:
            self._parts.append("::")
            self._at += ahead

    def _looked_up(self, name: str, used: int) -> None:
        """Reads the operand before it: a string is a name, whose number is meant; a number or column is shown as its name, unless a cast to oid follows."""
        self._at += used
        operand = self._parts[-1]
        as_number = self._upper(0) == "::" and self._name(3 if self._upper(2) == "." else 1) == "oid"
        if operand.startswith("'"):
            text = operand[1:-1].replace("''", "'")
            self._parts[-1] = f"{self._number(name, text)}::UINTEGER"
            return
        if as_number:
            return
        begin = len(self._parts) - 1
        if operand == ")":
            depth = 0
            while begin >= 0:
                depth += {")": 1, "(": -1}.get(self._parts[begin], 0)
                if not depth:
                    break
                begin -= 1
        while begin >= 2 and self._parts[begin - 1] == ".":
            begin -= 2
        self._parts[begin:] = [f"{_LOOKED_UP[name]}({' '.join(self._parts[begin:])})"]

    def _number(self, name: str, text: str) -> int:
        if text.isdecimal():
            return int(text)
        if name == "regnamespace":
            if (known := _SCHEMA_NUMBERS.get(text.replace('"', ""))) is None:
                raise PgError("3F000", f'schema "{text}" does not exist')
            return known
        if name != "regclass":
            return 0
        folded = text if '"' in text else text.lower()
        plain = folded.replace('"', "")
        found = self._names.get(plain, self._names.get(plain.removeprefix("pg_catalog.")))
        if found is None:
            raise PgError("42P01", f'relation "{text}" does not exist')
        return found


_CONSTANT: Mapping[str, Callable[[SessionSettings, int], str]] = {
    **{n: lambda s, _: _literal(s.user) for n in ("current_user", "session_user", "current_role", "user")},
    **{n: lambda s, _: _literal(s.database) for n in ("current_database", "current_catalog")},
    "current_schema": lambda s, _: "'public'",
    "version": lambda s, _: _literal(version_text()),
    "pg_backend_pid": lambda s, pid: str(pid),
}


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def label(name: str) -> str:
    """The name of a column, which DuckDB calls by its expression, as PostgreSQL calls it."""
    if (found := _LABEL.fullmatch(name)) is not None:
        called = found[1].removeprefix("fq_").lower()
        return (
            label(name[name.index("(") + 1 : -1].rpartition(" AS ")[0].strip())
            if called in ("cast", "try_cast")
            else called
        )
    if name.upper().startswith("CASE "):
        return "case"
    if (selected := _SELECTED.match(name)) is not None:
        return label(selected[1])
    if (column := _COLUMN.fullmatch(name)) is not None:
        return column[1]
    return name if name.isprintable() and not set(name) & _OF_EXPRESSIONS else "?column?"


@cache
def _vectors() -> frozenset[str]:
    return frozenset(c for d in described() for c, t in d.columns.items() if t.endswith("vector"))
