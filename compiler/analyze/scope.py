"""Which columns an expression may name, and what each is called in the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.catalog.names import correction, did_you_mean, listing
from flowql.compiler.diagnostics.edits import Edit, quoted, renamed, written
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Name
from flowql.compiler.plan.expr import ROWTIME, Column
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Role, Schema
from flowql.compiler.plan.types import BIGINT, JSONB, Kind, SqlType

PSEUDO = ("ROWTIME", "ROWPARTITION", "ROWOFFSET")
BOUNDS = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column as the user names it (`source`.`name`) and as the plan does (`column`). hidden: no one may name it."""

    source: str
    name: str
    type: SqlType
    column: str
    role: Role
    hidden: bool = False

    def expr(self) -> Column:
        return Column(self.type, self.column)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns of all sources of a query, in order. `joined`: there is more than one source."""

    columns: tuple[ScopeColumn, ...]
    aliases: tuple[str, ...]

    @property
    def joined(self) -> bool:
        return len(self.aliases) > 1

    def of(self, alias: str) -> tuple[ScopeColumn, ...]:
        return tuple(c for c in self.columns if c.source == alias)

    def by_plan_name(self, column: str) -> ScopeColumn | None:
        return next((c for c in self.columns if c.column == column), None)

    def is_ambiguous(self, name: str) -> bool:
        """Several sources have a column of that name (their own columns, not only ROWTIME and its like)."""
        return len({c.source for c in self.columns if c.name == name}) > 1


def scope_of(alias: str, schema: Schema, prefix: str = "") -> Scope:
    """The scope of one source. With `prefix` plan names are `PREFIX_NAME`, and the row time is a column too."""
    columns = [ScopeColumn(alias, f.name, f.type, prefix + f.name, f.role) for f in schema]
    columns.append(ScopeColumn(alias, "ROWTIME", BIGINT, prefix + "ROWTIME" if prefix else ROWTIME, "pseudo"))
    return Scope(tuple(columns), (alias,))


def without_hidden(scope: Scope, names: Sequence[str]) -> Scope:
    """The scope of one relation of standard SQL: the columns that can be seen in their order, then all others."""
    by_name = {c.name: c for c in scope.columns}
    others = [c if c.name in PSEUDO else replace(c, hidden=True) for c in scope.columns if c.name not in names]
    return replace(scope, columns=(*(by_name[n] for n in names), *others))


def join_scopes(left: Scope, right: Scope) -> Scope:
    return Scope(left.columns + right.columns, left.aliases + right.aliases)


def resolve(scope: Scope, name: Name, clause: str) -> ScopeColumn:
    """The column a name means. Errors name the clause, the column and what is near."""
    *qualifier, column = name.parts
    _refuse_part(scope, name)
    if qualifier and qualifier[0] not in scope.aliases:
        hint = did_you_mean(qualifier[0], scope.aliases) or f"sources here are {listing(scope.aliases)}"
        title = f"'{qualifier[0]}' is not a valid stream/table name or alias"
        edit = correction(name.span, qualifier[0], scope.aliases, first=True)
        raise mistake("FQ2001", title, name.span, "unknown source", help=hint, edit=edit)
    of_user = name.span != NOWHERE
    known = [c for c in scope.columns if not (c.hidden and of_user)]
    found = [c for c in known if c.name == column and (not qualifier or c.source == qualifier[0])]
    if len(found) == 1:
        return found[0]
    if found:
        could = listing([f"{c.source}.{c.name}" for c in found], "or")
        raise mistake(
            "FQ2003",
            f"column '{column}' is ambiguous: could be {could}",
            name.span,
            "in several sources",
            help=f"write {could}",
            edit=renamed(name.span, column, f"{quoted(found[0].source)}.{quoted(column)}"),
        )
    names = [c.name for c in known if (not qualifier or c.source == qualifier[0]) and c.name not in PSEUDO]
    hint = did_you_mean(column, names) or (f"columns are {listing(dict.fromkeys(names))}" if names else "")
    title = f"{clause} column '{'.'.join(name.parts)}' cannot be resolved"
    edit = correction(name.span, column, names)
    if edit is None and not qualifier and (not names or written(name.span) == f'"{column}"'):
        text = "'" + column.replace("'", "''") + "'"
        hint, edit = f"write a string in single quotes: {text}", Edit(name.span, text)
    raise mistake("FQ2002", title, name.span, "unknown column", help=hint, edit=edit)


def _refuse_part(scope: Scope, name: Name) -> None:
    """`column.part`, which is no name of a column: parts of JSONB and fields of a STRUCT are written otherwise. Raises CompileError."""
    aliased = len(name.parts) > 2 and name.parts[0] in scope.aliases
    parts = name.parts[aliased:]
    found = [c for c in scope.columns if c.name == parts[0] and (not aliased or c.source == name.parts[0])]
    of = found[0].type if found else None
    has_parts = of is not None and (of == JSONB or of.kind is Kind.STRUCT)
    if len(parts) == 1 or of is None or not has_parts or (not aliased and parts[0] in scope.aliases):
        if len(name.parts) > 2:
            help = "write  alias.column"
            raise unsupported("a column name of more than two parts is not supported yet", name.span, help=help)
        return
    base = ".".join(map(quoted, name.parts[: aliased + 1]))
    if of == JSONB:
        *path, last = ("'" + p.replace("'", "''") + "'" for p in parts[1:])
        text = "->".join((base, *path))
        help, edit = f"write  {text}->{last}  for JSONB, or  {text}->>{last}  for its text", f"{text}->>{last}"
    else:
        edit = "->".join((base, *map(quoted, parts[1:])))
        help = f"write  {edit}"
    title = f"'{base}' is a column of type {of}, not a relation"
    raise mistake("FQ2088", title, name.span, "part of a column", help=help, edit=Edit(name.span, edit))
