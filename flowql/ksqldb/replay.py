"""Applies the statements of scripts in order, as a ksqlDB server would, and keeps the streams, tables and queries that exist at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from flowql.compiler.analyze.dependencies import needed_names
from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import (
    AlterSource,
    AssertSchema,
    AssertTopic,
    CreateAs,
    CreateSource,
    CreateType,
    Drop,
    InsertInto,
    InsertRow,
    OtherStatement,
    QueryControl,
    SetProperty,
    Statement,
)
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.generator import quote_name, type_sql
from flowql.compiler.dialect.parser import parse_statements
from flowql.compiler.driver import Session
from flowql.compiler.physical.plan_builder import StatementResult
from flowql.compiler.plan.types import SqlType
from flowql.compiler.schemas.ref import SchemaLookup
from flowql.ksqldb.notes import Note
from flowql.ksqldb.rewriting import Rewriting, source_sql
from flowql.ksqldb.scripts import Found, Script, ScriptStatement, included, pieces, variables_of
from flowql.ksqldb.settings import plain

ASKS = ("SELECT", "SHOW", "LIST", "DESCRIBE", "EXPLAIN", "PRINT")
PROCESSING_LOG = "KSQL_PROCESSING_LOG"
_DEPTH_MAX = 20  # of scripts that run scripts

# The default advice for a mistake that the script's own cluster accepts.
_JAVA = "a user-defined Java function cannot run here; omit its callers:  --leave-out"
_REGISTRY = "name the registry that knows it:  --registry http://localhost:8081"

Role = Literal["type", "source", "query", "insert", "rows", "assert"]


@dataclass(slots=True)
class Definition:
    """A statement that is still in force. name: what it makes or writes into. query: the id of its query, if it is one.

    properties, variables: what held where it stands; of the variables those that it names.
    """

    role: Role
    name: str
    text: Rewriting
    span: Span
    statement: Statement
    query: str = ""
    comment: str = ""
    after: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A statement that is not in the project."""

    piece: ScriptStatement
    why: str


class Replay:
    """Applies scripts one after the other. `mistakes` are the user's; with `lenient` they leave a statement out instead."""

    def __init__(
        self, found: Found, variables: Mapping[str, str], registry: SchemaLookup, *, lenient: bool = False
    ) -> None:
        self._found, self._given, self._lenient = found, dict(variables), lenient
        self._variables: dict[str, str] = {}
        self._server = {n: v for n, (v, _) in found.server.items()}
        self._missing: set[str] = set()
        self.session = Session(registry=registry, properties=self._server)
        self.definitions: dict[str, Definition] = {}
        self.connectors: dict[str, Connector] = {}
        self.left_out: list[LeftOut] = []
        self.server = found.server
        self.settings: dict[str, list[tuple[str, Span]]] = {}
        self.notes: list[Note] = found.notes
        self.mistakes: list[Diagnostic] = found.mistakes

    def run(self) -> None:
        for script in self._found.scripts:
            self._variables = dict(self._given)
            self.session.properties = dict(self._server)
            self._script(script, 0)

    def _script(self, script: Script, depth: int) -> None:
        found, unclosed = pieces(script.source)
        for piece in found:
            if piece.words[:2] == ("RUN", "SCRIPT"):
                inner = included(piece, script, self._found)
                if depth >= _DEPTH_MAX:
                    self._wrong(piece, [Diagnostic("FQ5020", "scripts run each other in a cycle", piece.span)])
                elif inner is not None:
                    self._script(inner, depth + 1)
                continue
            try:
                self._piece(piece)
            except CompileError as e:
                self._wrong(piece, list(e.diagnostics))
        if unclosed is not None:
            self.mistakes.append(unclosed)

    def _wrong(self, piece: ScriptStatement, diagnostics: list[Diagnostic]) -> None:
        """A statement that cannot be applied. What needs it is not looked at: its cause is known."""
        name = _name_in(piece)
        whys = [d.title for d in diagnostics]
        if self._lenient or all(d.unsupported for d in diagnostics):
            self._leave_out(piece, "; ".join(whys), help_=next((d.help for d in diagnostics if d.help), ""))
        else:
            self.mistakes += map(_advised, diagnostics)
        if name:
            self._missing.add(name)

    def _without(self, piece: ScriptStatement, why: str, help_: str = "") -> None:
        """Leave a statement out, and what needs it after it."""
        self._leave_out(piece, why, help_)
        self._missing.add(_name_in(piece))

    def _leave_out(self, piece: ScriptStatement, why: str, help_: str = "") -> None:
        self.left_out.append(LeftOut(piece, why))
        self.notes.append(Note("left out", why, piece.span, help_))

    # One statement.

    def _piece(self, piece: ScriptStatement) -> None:
        connector = connector_of(piece)
        if connector is not None:
            self._connector(connector, piece)
            return
        statements, mistakes = parse_statements(piece.source, "ksql", self._variables)
        if mistakes:
            raise (UnsupportedError if all(m.unsupported for m in mistakes) else ParseError)(*mistakes)
        for n, statement in enumerate(statements):
            self._statement(statement, piece, first=n == 0)

    def _statement(self, statement: Statement, piece: ScriptStatement, *, first: bool) -> None:
        if isinstance(statement, OtherStatement):
            self._other(statement, piece)
            return
        missing = sorted(needed_names(statement) & self._missing)
        if missing:
            if first:
                self._without(piece, f"it needs {missing[0]}, which is left out")
            return
        if PROCESSING_LOG in needed_names(statement) and PROCESSING_LOG not in self.session.catalog.sources:
            self._without(piece, "the processing log is ksqlDB's own", "bad records are in the table DEAD_LETTERS")
            return
        before = self.session.catalog
        result = self.session.execute_statement(statement)
        match statement:
            case SetProperty(value=str(value)):
                for other in [n for n in self.session.properties if plain(n) == plain(statement.name)]:
                    if other != statement.name:
                        del self.session.properties[other]  # the same property in its other spelling
                self.settings.setdefault(statement.name, []).append((value, statement.span))
            case CreateSource() | CreateAs() | CreateType() | InsertInto() | InsertRow():
                self._define(statement, piece, result, first=first)
            case AssertTopic() | AssertSchema():
                self._asserted(statement, piece)
            case AlterSource():
                self._alter(statement, piece)
            case Drop():
                self._drop(statement, piece, result, {} if statement.kind != "type" else before.types)
            case QueryControl():
                self._control(statement, piece, result)

    def _define(self, statement: Statement, piece: ScriptStatement, result: StatementResult, *, first: bool) -> None:
        name = result.name
        if result.action == "nothing":
            self.notes.append(Note("left out", f"{name} exists already (IF NOT EXISTS)", piece.span))
            return
        roles: dict[type, Role] = {
            CreateType: "type",
            CreateSource: "source",
            CreateAs: "query",
            InsertInto: "insert",
            InsertRow: "rows",
        }
        role = roles[type(statement)]
        if role == "rows" and not first:
            return  # one statement of several rows
        key = _key(role, name, result, piece)
        text = Rewriting(piece)
        if getattr(statement, "or_replace", False):
            text.drop_words("OR", "REPLACE")
            old = self.definitions.get(key)
            if old is not None:
                self._replaced(old, piece)
        query = result.query.id if result.query is not None else ""
        made = Definition(role, name, text, piece.span, statement, query, piece.comment, piece.after)
        made.properties = dict(self.session.properties)
        made.variables = variables_of(piece.text, self._variables)
        self._missing.discard(f"type {name}" if role == "type" else name)
        self.definitions[key] = made

    def _replaced(self, old: Definition, piece: ScriptStatement) -> None:
        text = f"{old.name} is replaced here: only this last definition is imported, and computes from the beginning"
        self.notes.append(
            Note("changed", f"{text}; in ksqlDB it goes on with what that of {_at(old.span)} came to", piece.span)
        )

    def _alter(self, statement: AlterSource, piece: ScriptStatement) -> None:
        made = self.definitions.get(f"source {statement.name}")
        assert made is not None, "ALTER is refused for results of queries"
        if isinstance(made.statement, CreateSource) and made.statement.columns and made.role == "source":
            types = {f.name: f.type for f in self.session.catalog.sources[made.name].schema}
            texts = [f"{quote_name(c.name)} {type_sql(types[c.name])}" for c in statement.columns]
            last = max(made.statement.columns, key=lambda c: (c.span.line, c.span.column)).span
            made.text.insert_after(last, "".join(f",\n  {t}" for t in texts))
        else:
            self._declare(made)
        self.notes.append(Note("changed", f"the columns are in the definition of {made.name}", piece.span))

    def _declare(self, made: Definition) -> None:
        """Write a definition as a plain CREATE with all columns, as the catalogue knows it."""
        source = self.session.catalog.sources[made.name]
        made.role, made.query, made.variables, made.properties = "source", "", {}, {}
        made.text = Rewriting.of(source_sql(source))

    def _drop(
        self, statement: Drop, piece: ScriptStatement, result: StatementResult, types: Mapping[str, SqlType]
    ) -> None:
        if result.action == "nothing":
            return
        if statement.kind == "type":
            self._drop_type(statement.name, types)
            return
        gone = [k for k, d in self.definitions.items() if d.name == statement.name and d.role != "type"]
        for key in gone:
            self._told_dropped(self.definitions.pop(key), piece)

    def _drop_type(self, name: str, types: Mapping[str, SqlType]) -> None:
        """Drops a type. Definitions that use it keep it, written out in full."""
        self.definitions.pop(f"type {name}", None)
        for d in self.definitions.values():
            d.text.expand_type(d.statement, name, types[name])

    def _told_dropped(self, old: Definition, piece: ScriptStatement) -> None:
        what = {"rows": "rows for", "insert": "a query into"}.get(old.role, "")
        text = f"{what} {old.name} of {_at(old.span)}".strip()
        kept = "; what was written before stays in the topic there" if old.role != "source" else ""
        self.notes.append(Note("left out", f"{text} is dropped here{kept}", piece.span))

    def _asserted(self, statement: AssertTopic | AssertSchema, piece: ScriptStatement) -> None:
        """Kept as it is. In ksqlDB it is looked at when its turn comes, so a topic may be one that the script has made."""
        key = f"assert {piece.span.path}:{piece.span.line}:{piece.span.column}"
        made = Definition("assert", "", Rewriting(piece), piece.span, statement, "", piece.comment, piece.after)
        made.variables = variables_of(piece.text, self._variables)
        self.definitions[key] = made
        text = "ASSERT is looked at before anything is deployed, not between the statements"
        self.notes.append(Note("differs", text, piece.span, "leave out what the project itself makes"))

    def _control(self, statement: QueryControl, piece: ScriptStatement, result: StatementResult) -> None:
        if statement.verb != "terminate":
            return  # what is paused in the end is in the plan
        for ended in result.ended:
            key = next(k for k, d in self.definitions.items() if d.query == ended)
            made = self.definitions[key]
            text = f"{ended} is ended here"
            if made.role == "insert":
                del self.definitions[key]
            else:
                self._declare(made)
                self.definitions = {(f"source {made.name}" if k == key else k): d for k, d in self.definitions.items()}
                text += f": {made.name} is only a {self.session.catalog.sources[made.name].kind} over its topic"
            self.notes.append(Note("changed", text, piece.span))

    def _connector(self, connector: Connector, piece: ScriptStatement) -> None:
        if connector.dropped:
            self.connectors.pop(connector.name, None)
            return
        self.connectors[connector.name] = connector
        file = f"connectors/{connector.file_name}"
        text = f"the {connector.kind} connector {connector.name}: FlowQL runs no connectors; its configuration is in {file}"
        self.notes.append(Note("left out", text, piece.span, f"start it with:  {connector.command(file)}"))

    def _other(self, statement: OtherStatement, piece: ScriptStatement) -> None:
        if statement.verb in ASKS:
            where = "flowql topic consume" if statement.verb == "PRINT" else "flowql shell"
            self._leave_out(piece, f"{statement.verb} asks and defines nothing", f"ask it with:  {where}")
        else:
            self._leave_out(piece, f"{statement.verb} is nothing that FlowQL can do")

    def living(self, *roles: Role) -> Iterator[Definition]:
        """Definitions that are still in force, in order."""
        return (d for d in self.definitions.values() if d.role in roles)


def _key(role: Role, name: str, result: StatementResult, piece: ScriptStatement) -> str:
    """Under which a definition is replaced by another one."""
    if role == "type":
        return f"type {name}"
    if role in ("source", "query"):
        return f"source {name}"
    if result.query is not None:
        return f"query {result.query.id} {piece.span.path}:{piece.span.line}:{piece.span.column}"
    return f"rows {piece.span.path}:{piece.span.line}:{piece.span.column}"


def _at(span: Span) -> str:
    return f"{span.path}:{span.line}" if span != NOWHERE else "above"


_NAMED = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:SOURCE\s+)?(STREAM|TABLE|TYPE)\s+(?:IF\s+NOT\s+EXISTS\s+)?([`\"]?)([\w$]+)\2",
    re.I,
)


def _name_in(piece: ScriptStatement) -> str:
    """The name that a statement which was not applied would have defined, as in `needed_names`; else empty."""
    found = _NAMED.match(piece.text)
    if found is None:
        return ""
    name = found[3] if found[2] else found[3].upper()
    return f"type {name}" if found[1].upper() == "TYPE" else name


def _advised(d: Diagnostic) -> Diagnostic:
    if d.code == "FQ2015":  # no schema: the usual advice is to write columns
        return replace(d, help=_REGISTRY)
    return replace(d, help=_JAVA) if d.code == "FQ2006" and not d.help else d


# CREATE and DROP CONNECTOR: FlowQL runs none, so their configuration is kept for a Kafka Connect that does.


@dataclass(frozen=True, slots=True)
class Connector:
    """kind: source or sink. config: what Kafka Connect takes. dropped: the statement was DROP."""

    name: str
    kind: str = ""
    config: dict[str, str] = field(default_factory=dict)
    dropped: bool = False

    @property
    def file_name(self) -> str:
        return re.sub(r"\W+", "_", self.name) + ".json"

    def to_json(self) -> str:
        """The body of Kafka Connect's POST /connectors."""
        return json.dumps({"name": self.name, "config": self.config}, indent=2) + "\n"

    def command(self, file: str) -> str:
        return f"curl -X POST -H 'Content-Type: application/json' -d @{file} CONNECT/connectors"


def connector_of(piece: ScriptStatement) -> Connector | None:
    """The connector a statement is about, None when it is about something else."""
    words = [t.upper for t in piece.tokens[:3]]
    if words[:2] == ["DROP", "CONNECTOR"]:
        return Connector(_name(piece.tokens[2:]), dropped=True)
    if words[:1] == ["CREATE"] and words[1:2] in (["SOURCE"], ["SINK"]) and words[2:] == ["CONNECTOR"]:
        return Connector(_name(piece.tokens[3:]), words[1].lower(), _config(piece.tokens[3:]))
    return None


def _name(tokens: Sequence[Tok]) -> str:
    named = [t for t in tokens if t.upper not in ("IF", "NOT", "EXISTS")]
    if not named:
        return ""
    return named[0].upper or named[0].text


def _config(tokens: Sequence[Tok]) -> dict[str, str]:
    """`name = value` pairs of the parentheses; names keep their case."""
    return {
        tokens[i - 1].text: tokens[i + 1].text for i, t in enumerate(tokens) if t.text == "=" and i + 1 < len(tokens)
    }
