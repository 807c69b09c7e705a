"""Statements that change rows of tables, bound once for all that differ in constants alone: parsing and binding a statement takes most of its time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.constants import Constant, constants_apart
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, SourceDef

if TYPE_CHECKING:
    from flowql.compiler.analyze.change_templates import ChangeTemplate
    from flowql.compiler.driver import DialectName

ENTRIES_MAX, CHARS_MAX = 512, 1 << 20  # of all texts together
TEXT_CHARS_MAX = 32_768


@dataclass(frozen=True, slots=True)
class _Known:
    """target: as it was when the statement was bound."""

    template: ChangeTemplate
    target: SourceDef


class BoundChanges:
    """The forms of the statements that came last. Any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()  # guards what is known and the number of its characters
        self.chars = 0

    def compiled(
        self, text: str, sources: Mapping[str, SourceDef], dialect: DialectName, variables: Mapping[str, str]
    ) -> Sequence[TableChange | InsertValues]:
        """The statements of a text, over these streams and tables by their names. Raises CompileError."""
        apart = constants_apart(text) if dialect == "standard" and len(text) <= TEXT_CHARS_MAX else None
        found = None if apart is None else self._filled(*apart, sources)
        if found is not None:
            return [found]
        from flowql.compiler.analyze.change_templates import template_of  # loads the parser: 0.5 s
        from flowql.compiler.driver import compile_changes

        changes = compile_changes(SourceText("", text), [*sources.values()], dialect=dialect, variables=variables)
        if apart is not None and len(changes) == 1 and isinstance(change := changes[0], TableChange):
            form, constants = apart
            template = template_of(change, text, constants)
            if template is not None:
                self._keep(form, _Known(template, sources[change.target]))
        return changes

    def known(
        self, text: str, sources: Mapping[str, SourceDef], dialect: DialectName
    ) -> tuple[SourceDef, TableChange] | None:
        """The statement of a text and its table; None for one that has to be parsed and bound. It takes microseconds."""
        apart = constants_apart(text) if dialect == "standard" and len(text) <= TEXT_CHARS_MAX else None
        found = None if apart is None else self._filled(*apart, sources)
        return None if found is None else (sources[found.target], found)

    def _filled(self, form: str, constants: Sequence[Constant], sources: Mapping[str, SourceDef]) -> TableChange | None:
        with self._lock:
            known = self._known.get(form)
            if known is None:
                return None
            self._known.move_to_end(form)
        target = sources.get(known.template.target)
        if target is None or (target is not known.target and target != known.target):
            return None
        return known.template.filled(constants)

    def _keep(self, form: str, known: _Known) -> None:
        with self._lock:
            self._forget(form)
            self._known[form] = known
            self.chars += len(form)
            while len(self._known) > ENTRIES_MAX or self.chars > CHARS_MAX:
                self._forget(next(iter(self._known)))

    def _forget(self, form: str) -> None:
        if self._known.pop(form, None) is not None:
            self.chars -= len(form)
