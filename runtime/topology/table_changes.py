"""INSERT, UPDATE and DELETE on the rows of a table: pure functions over existing rows, by row kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from flowql.compiler.functions.evaluate import Predicate, RowFunction, compile_predicate, compile_row
from flowql.compiler.plan.expr import Expr, Literal, columns_of
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.tables import EXCLUDED, ROW_NUMBER, ChangeForm, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import Row
from flowql.runtime.errors import StatementFailed
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.values import encode_value
from flowql.runtime.topology.table_rows import Key, KeyOf, Rows

_TEXT_MAX = 80
COLUMNS_KEPT = 64  # lists of the columns of an INSERT for which defaults are compiled
INT_MAX = 2**31 - 1


class Present(Protocol):
    """The rows of a table before a statement."""

    def get(self, key: Key) -> Row | None: ...


@dataclass(slots=True)
class Changed:
    """The changes of a statement. count: the number of affected rows. rows: by key, the row as it is afterwards. gone: the rows of keys
    that nothing has afterwards. returned: what RETURNING gives of each of these rows, in the order in which they were changed. ends: of the table's
    topic, once it is committed.
    """

    count: int = 0
    rows: Rows = field(default_factory=dict)
    gone: Rows = field(default_factory=dict)
    returned: list[Row] = field(default_factory=list)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)

    def put(self, key: Key, row: Row) -> None:
        self.gone.pop(key, None)
        self.rows[key] = row

    def remove(self, key: Key, row: Row) -> None:
        self.rows.pop(key, None)
        self.gone[key] = row

    def there(self, key: Key, present: Present) -> Row | None:
        """The row of a key by now."""
        return self.rows.get(key) or (None if key in self.gone else present.get(key))


class RowRules:
    """The rules of a table for its rows, compiled."""

    def __init__(self, source: SourceDef) -> None:
        self.source, self.key_of = source, KeyOf(source)
        self.stored, self.check, self.older = _stored(source, self.key_of), _checker(source), _older(source)
        self.complete, self.numbered = lru_cache(COLUMNS_KEPT)(partial(_completer, source)), partial(_numberer, source)
        self._kernels = WeakKeyDictionary[ChangeForm, tuple[Predicate, RowFunction]]()

    def kernels(self, change: TableChange, names: Sequence[str]) -> tuple[Predicate, RowFunction]:
        """Whether a row meets the condition, and the values of the settings. names: of the columns of the rows. Statements of one form share
        what is compiled.
        """
        form = change.form
        if form is None:
            return _kernels(change, names)
        known = self._kernels.get(form)
        if known is None:
            known = self._kernels[form] = _kernels(form, (*names, *form.names))
        (matches, computed), constants = known, change.constants
        return lambda row: matches((*row, *constants)), lambda row: computed((*row, *constants))


def _kernels(change: TableChange | ChangeForm, names: Sequence[str]) -> tuple[Predicate, RowFunction]:
    where, settings, apart = change.where, change.settings, isinstance(change, TableChange)
    matches: Predicate = _every
    if where is not None:
        matches = compile_predicate(where, names, on_error=_failing("WHERE"), constants_apart=apart)
    report = _failing("SET", [s.name for s in settings])
    return matches, compile_row([s.expr for s in settings], names, on_error=report, constants_apart=apart)


def _every(_row: Sequence[Any]) -> bool:
    return True


def given_rows(change: TableChange) -> list[Row]:
    """The rows of VALUES, in the order of the statement's columns. Raises StatementFailed."""
    made: list[Row] = []
    for number, exprs in enumerate(change.rows, 1):
        if all(isinstance(e, Literal) for e in exprs):
            made.append(tuple(e.value for e in exprs if isinstance(e, Literal)))
        else:
            made.append(
                compile_row(
                    exprs, [], on_error=_failing(f"row {number} of VALUES", change.columns), constants_apart=True
                )(())
            )
    return made


def insert(rules: RowRules, change: TableChange, given: Sequence[Row], present: Present, first: int) -> Changed:
    """Insert rows. given: values of the statement's columns. first: the number of the first row, where rows are told apart by it."""
    source, key_of, changed, check, stored = rules.source, rules.key_of, Changed(), rules.check, rules.stored
    complete, numbered = rules.complete(change.columns), rules.numbered(change.columns)
    conflict = _Conflict(rules, change) if change.on_duplicate == "update" else None
    older, returning = rules.older, _returning(source, change)
    for row in _in_time(source, [stored(complete(values)) for values in given]):
        if numbered is not None:
            row = stored(numbered(row, first + len(changed.rows)))  # the topic's ends rise by more than that
        check(row)
        key = key_of(row)
        there = changed.there(key, present)
        if there is not None and conflict is not None:
            made = _on_conflict(conflict, changed, present, there, row)
            if made is not None:
                changed.count += 1
                changed.returned += returning(made)
            continue
        if there is not None and change.on_duplicate == "error":
            raise StatementFailed(duplicate(source, row))
        if there is None or (change.on_duplicate in ("replace", "fill") and not older(row, there)):
            filled = row if there is None or change.on_duplicate == "replace" else _filled(there, row)
            if filled is not row:
                filled = stored(filled)
                check(filled)
                _refuse_another_key(source, key, key_of(filled), filled)
            changed.put(key, filled)
            changed.count += 1
            changed.returned += returning(filled)
    return changed


def _refuse_another_key(source: SourceDef, key: Key, filled: Key, row: Row) -> None:
    if filled != key:
        title = f"ON CONFLICT DO UPDATE IF NOT NULL would give a row of {source.name} another key: {_shown_key(source, row)}"
        raise StatementFailed(title)


def _filled(there: Row, given: Row) -> Row:
    """The row that exists with the values given in its place that are not NULL."""
    return tuple(old if new is None else new for old, new in zip(there, given, strict=True))


def _older(source: SourceDef) -> Callable[[Row, Row], bool]:
    """Whether the first of two rows is older than the second by the columns that tell; NULL is the oldest."""
    at = [source.schema.names.index(c) for c in source.rules.versions] if source.rules is not None else []
    return lambda row, there: [_age(row[i]) for i in at] < [_age(there[i]) for i in at]


def _age(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


def _in_time(source: SourceDef, rows: list[Row]) -> list[Row]:
    """In the order of their times where there is a watermark: so no row of a statement is late because of another one."""
    if source.watermark is None:
        return rows
    at = source.schema.names.index(source.watermark.column)
    return sorted(rows, key=lambda row: (row[at] is not None, row[at] or 0))


def _on_conflict(conflict: _Conflict, changed: Changed, present: Present, there: Row, given: Row) -> Row | None:
    """DO UPDATE. The existing row as it is now; None where the condition leaves it as it was."""
    source, key_of = conflict.rules.source, conflict.rules.key_of
    key = key_of(there)
    if key in changed.rows:
        title = f"ON CONFLICT DO UPDATE would change a row of {source.name} twice: {_shown_key(source, there)}"
        raise StatementFailed(title)
    made = conflict.row(there, given)
    if made is None:
        return None
    made = conflict.rules.stored(made)
    conflict.rules.check(made)
    new_key = key_of(made)
    if new_key != key:
        changed.remove(key, there)
        if changed.there(new_key, present) is not None:
            raise StatementFailed(duplicate(source, made))
    changed.put(new_key, made)
    return made


def update(
    rules: RowRules,
    change: TableChange,
    rows: Iterable[tuple[Key, Row]],
    present: Present,
    selected: Sequence[Row] | None = None,
) -> Changed:
    """Update the rows that meet the condition: all values are computed from the rows as they were, and keys are compared at the end.

    rows: at least all that can meet it. selected: the rows of the statement's query, in place of the condition.
    """
    source, key_of, changed, stored, check = rules.source, rules.key_of, Changed(), rules.stored, rules.check
    names = source.schema.names
    matches: Callable[[Row], bool]
    matches, setting = _changing(rules, change, names)
    beside: Callable[[Row], Row] = _nothing
    if selected is not None:
        matches, setting, beside = _by_query(source, change, selected, setting)
    returning = _returning(source, change)
    for key, row in rows:
        if matches(row):
            made = stored(setting(row))
            check(made)
            new_key = key_of(made)
            if new_key in changed.rows:
                raise StatementFailed(duplicate(source, made))
            changed.rows[new_key] = made
            changed.gone[key] = row
            changed.returned += returning((*made, *beside(row)))
    for key, made in changed.rows.items():
        if key not in changed.gone and present.get(key) is not None:
            raise StatementFailed(duplicate(source, made))
    changed.count = len(changed.rows)
    changed.gone = {k: r for k, r in changed.gone.items() if k not in changed.rows}
    return changed


def delete(
    rules: RowRules, change: TableChange, rows: Iterable[tuple[Key, Row]], selected: Sequence[Row] | None = None
) -> Changed:
    """Delete the rows that meet the condition, or that the statement's query has selected. rows: at least all of these."""
    changed, source = Changed(), rules.source
    matches: Callable[[Row], bool]
    (matches, _), returning = rules.kernels(change, source.schema.names), _returning(source, change)
    beside: Callable[[Row], Row] = _nothing
    if selected is not None:
        matches, _, beside = _by_query(source, change, selected, lambda row: row)
    for key, row in rows:
        if matches(row):
            changed.remove(key, row)
            changed.count += 1
            changed.returned += returning((*row, *beside(row)))
    return changed


# --- parts ---


def _numberer(source: SourceDef, columns: Sequence[str]) -> Callable[[Row, int], Row] | None:
    """Puts the number of a row, from 0 on, where it belongs: the key of a row that has none, and an identity column that is not given."""
    assert source.rules is not None
    names, identity = source.schema.names, source.rules.identity_column
    key_at = names.index(ROW_NUMBER) if ROW_NUMBER in names else None
    identity_at = names.index(identity) if identity is not None and identity not in columns else None
    if key_at is None and identity_at is None:
        return None
    field = None if identity is None else source.schema.get(identity)
    is_int = field is not None and field.type.kind is Kind.INT

    def numbered(row: Row, number: int) -> Row:
        values = list(row)
        if key_at is not None:
            values[key_at] = number
        if identity_at is not None:
            values[identity_at] = number + 1
            if is_int and number >= INT_MAX:
                raise StatementFailed(
                    f"column {names[identity_at]} of {source.name} is INT, and its numbers are used up"
                )
        return tuple(values)

    return numbered


def _completer(source: SourceDef, columns: Sequence[str]) -> Callable[[Row], Row]:
    """Gives a whole row, without its number: columns that are not given have their defaults."""
    assert source.rules is not None
    names = source.schema.names
    at = {n: i for i, n in enumerate(columns)}
    missing = [d for d in source.rules.defaults if d.name not in at]
    computed = compile_row([d.expr for d in missing], [], on_error=_failing("DEFAULT", [d.name for d in missing]))
    defaults = {d.name: i for i, d in enumerate(missing)}

    def complete(values: Row) -> Row:
        others = computed(()) if defaults else ()
        return tuple(values[at[n]] if n in at else others[defaults[n]] if n in defaults else None for n in names)

    return complete


def _stored(source: SourceDef, key_of: KeyOf) -> Callable[[Row], Row]:
    """Gives a row as it is stored: with its generated columns."""
    assert source.rules is not None
    as_stored, generated, names = key_of.as_stored, source.rules.generated, source.schema.names
    if not generated:
        return as_stored
    computed = compile_row(
        [g.expr for g in generated], names, on_error=_failing("GENERATED", [g.name for g in generated])
    )
    places = [names.index(g.name) for g in generated]

    def stored(row: Row) -> Row:
        row = as_stored(row)
        values = list(row)
        for i, value in zip(places, computed(row), strict=True):
            values[i] = value
        return as_stored(tuple(values))

    return stored


def _returning(source: SourceDef, change: TableChange) -> Callable[[Row], list[Row]]:
    """The RETURNING columns of a row, whose values of `beside` stand behind its own: one row, or none without RETURNING."""
    if not change.returning:
        return lambda _row: []
    names = (*source.schema.names, *(f.name for f in change.beside))
    computed = compile_row([c.expr for c in change.returning], names, on_error=_failing("RETURNING"))
    return lambda row: [computed(row)]


def _nothing(_row: Row) -> Row:
    return ()


def _changing(rules: RowRules, change: TableChange, names: Sequence[str]) -> tuple[Predicate, Callable[[Row], Row]]:
    """Whether a row meets the condition, and the row with its new values. names: as for `RowRules.kernels`."""
    matches, computed = rules.kernels(change, names)
    own = rules.source.schema.names
    places = [own.index(s.name) for s in change.settings]

    def made(row: Row) -> Row:
        values = list(row[: len(own)])
        for i, value in zip(places, computed(row), strict=True):
            values[i] = value
        return tuple(values)

    return matches, made


def _by_query(
    source: SourceDef, change: TableChange, selected: Sequence[Row], setting: Callable[[Row], Row]
) -> tuple[Callable[[Row], bool], Callable[[Row], Row], Callable[[Row], Row]]:
    """Which rows a query has selected, how they become the new ones, and what it has beside each for RETURNING. setting: of the columns
    that get no value of the query.
    """
    names, identity = source.schema.names, source.identity
    at = [names.index(n) for n in identity]
    places = [names.index(n) for n in change.columns[len(identity) :]]
    new: dict[bytes, Row] = {}
    for row in selected:
        key, values = encode_value(row[: len(identity)]), row[len(identity) :]
        if key in new and encode_value(new[key]) != encode_value(values):
            title = _several(source, change, new[key][: len(places)] == values[: len(places)])
            shown = ", ".join(f"{n} = {v}" for n, v in zip(identity, row, strict=False))[:_TEXT_MAX]
            raise StatementFailed(f"{title} ({shown})")
        new[key] = values

    def of(row: Row) -> bytes:
        return encode_value(tuple(row[i] for i in at))

    def made(row: Row) -> Row:
        values = list(setting(row))
        for i, value in zip(places, new[of(row)], strict=False):
            values[i] = value
        return tuple(values)

    return lambda row: of(row) in new, made, lambda row: new[of(row)][len(places) :]


def _several(source: SourceDef, change: TableChange, same: bool) -> str:
    """same: the rows of FROM differ in what RETURNING names, and in nothing else."""
    clause = "FROM" if change.kind == "update" else "USING"
    what = "be returned with" if same else "get"
    return f"a row of {source.name} would {what} several values at once: more than one row of {clause} meets it"


class _Conflict:
    """DO UPDATE SET of an INSERT."""

    def __init__(self, rules: RowRules, change: TableChange) -> None:
        self.rules, source = rules, rules.source
        names = (*source.schema.names, *(f"{EXCLUDED}.{n}" for n in source.schema.names))
        self._matches, self._set = _changing(rules, change, names)

    def row(self, there: Row, given: Row) -> Row | None:
        """The existing row with its new values; None where the condition does not hold."""
        both = (*there, *given)
        return self._set(both) if self._matches(both) else None


def _checker(source: SourceDef) -> Callable[[Row], None]:
    """Raises StatementFailed for a row that breaks a rule of the table."""
    assert source.rules is not None
    names, not_null = source.schema.names, source.rules.not_null
    filled = [(i, n) for i, n in enumerate(names) if n in not_null]
    checks = (*source.rules.limits, *source.rules.checks)
    holds = compile_row([c.expr for c in checks], names, on_error=_failing("CHECK"))

    def check(row: Row) -> None:
        for i, name in filled:
            if row[i] is None:
                raise StatementFailed(null_given(source, name))
        for c, kept in zip(checks, holds(row), strict=True):
            if kept is False:
                raise StatementFailed(broken_rule(source, c, row))

    return check


def null_given(source: SourceDef, name: str) -> str:
    """The error for a row with NULL in a NOT NULL column."""
    return f"column {name} of {source.name} is NOT NULL, and a row would have NULL in it"


def broken_rule(source: SourceDef, check: NamedExpr, row: Row) -> str:
    """The error for a row that breaks a constraint."""
    return f"a row of {source.name} would break {check.name}{_of_columns(check.expr, source.schema.names, row)}"


def _of_columns(e: Expr, names: Sequence[str], row: Row) -> str:
    """The values that broke a constraint."""
    named = sorted(columns_of(e))
    text = ", ".join(f"{n} = {row[names.index(n)]}" for n in named)
    return f" ({text[:_TEXT_MAX]}{'...' if len(text) > _TEXT_MAX else ''})" if named else ""


def duplicate(source: SourceDef, row: Row) -> str:
    """The error for a row whose key exists."""
    return f"{source.name} has a row with the key {_shown_key(source, row)} already"


def _shown_key(source: SourceDef, row: Row) -> str:
    names = source.schema.names
    text = ", ".join(f"{f.name} = {row[names.index(f.name)]}" for f in source.schema.key)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "..."


def _failing(clause: str, columns: Sequence[str] = ()) -> Callable[[int, Exception], None]:
    """Reports what fails in a clause. columns: those that its values are for."""

    def report(index: int, error: Exception) -> None:
        of_column = f", column {columns[max(index, ~index)]}" if columns else ""
        raise StatementFailed(f"{clause}{of_column}: {error}") from error

    return report
