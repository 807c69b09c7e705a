"""Local tables: what rows may be, and statements that change rows. A table's rows are the last record of each key in its topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Field

HIDDEN = "__"  # prefix of internal columns, which queries neither see nor name
ROW_NUMBER = "__row"  # the key of a table without PRIMARY KEY: the number of the row, BIGINT
EXCLUDED = (
    "excluded"  # in ON CONFLICT DO UPDATE: the row that was to be inserted; its columns are `excluded.name` in the plan
)
# fill: what is given and is not NULL replaces what the row has.
OnDuplicate = Literal["error", "nothing", "replace", "fill", "update"]
Identity = Literal["always", "by default"]  # whether a statement may give the number of a row itself: by default


@dataclass(frozen=True, slots=True)
class TableRules:
    """The constraints on the rows of a local table.

    defaults: constants by column, for columns an INSERT leaves out. generated: columns that are computed from others of their row when it is
    written. append_only: rows are never updated or deleted. on_duplicate:
    what an INSERT does with a key that exists, where it does not say. numbered: the column that has the number of its row, and
    whether statements may give it; numbers rise, begin at 1, and leave some out.
    checks, limits: conditions of a row that must not be false, by the constraint as it is told to a person; limits are those of types.
    versions: with `replace` and `fill`, columns by which a row is taken only if it is not older than the one that exists; NULL is the oldest.
    """

    not_null: tuple[str, ...] = ()
    defaults: tuple[NamedExpr, ...] = ()
    append_only: bool = False
    on_duplicate: OnDuplicate = "error"
    generated: tuple[NamedExpr, ...] = ()
    numbered: tuple[str, Identity] | None = None
    versions: tuple[str, ...] = ()
    checks: tuple[NamedExpr, ...] = ()
    limits: tuple[NamedExpr, ...] = ()

    @property
    def identity_column(self) -> str | None:
        return None if self.numbered is None else self.numbered[0]


RowFormat = Literal["csv", "text", "binary", "json", "parquet"]


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Where the rows of COPY come from. path: of a file; empty for rows that the client sends.

    format: None: by the ending of the name. header: `match` if it must name the columns in their order. delimiter, null: None: the default of
    the format. listed: whether the statement lists its columns.
    """

    path: str
    format: RowFormat | None = None
    header: Literal["no", "yes", "match"] = "no"
    delimiter: str | None = None
    null: str | None = None
    listed: bool = False


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ChangeForm:
    """Condition and settings that statements have in common that differ in constants alone. names: of columns that hold these constants, which follow
    those of the row.
    """

    names: tuple[str, ...]
    settings: tuple[NamedExpr, ...]
    where: Expr | None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TableChange:
    """INSERT, UPDATE or DELETE of a local table, bound: it takes effect as a whole or not at all.

    columns, rows: of an insert, constants for each column that is given. select: in their place, the text of a query whose rows are
    inserted. settings, where: of an UPDATE, or of ON CONFLICT DO UPDATE; over the columns of the existing row. Of an UPDATE or DELETE
    `select` may stand in place of the condition: its columns are those that tell the rows to change apart, new values, and those of
    `beside`, which are columns of other relations that RETURNING names.
    copied: for COPY, the origin of the rows. reads_files: whether `select` reads files; it then reads nothing else.
    returning: over the columns of each row that is inserted, as it is after an UPDATE or before a DELETE, and those of `beside`.
    Several may have one name.
    statement: its text, without comments and in one spelling.
    form, constants: of a statement that was made from a bound one, the same settings and condition over constants that are apart.
    """

    target: str
    kind: Literal["insert", "update", "delete"]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Expr, ...], ...] = ()
    select: str = ""
    settings: tuple[NamedExpr, ...] = ()
    where: Expr | None = None
    on_duplicate: OnDuplicate = "error"
    statement: str = ""
    returning: tuple[NamedExpr, ...] = ()
    beside: tuple[Field, ...] = ()
    copied: CopyFrom | None = None
    reads_files: bool = False
    form: ChangeForm | None = field(default=None, compare=False, repr=False)
    constants: tuple[Any, ...] = field(default=(), compare=False, repr=False)
