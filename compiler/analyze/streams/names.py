"""Names that Python has written, as the catalogue has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.scope import BOUNDS, PSEUDO, Scope, ScopeColumn, resolve
from flowql.compiler.analyze.streams.draft import Draft, around, is_plain
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.ast import Ast, Name, TypeRef
from flowql.compiler.dialect.parser import parse_type
from flowql.compiler.dialect.walks import with_children
from flowql.compiler.functions.dialects import function_name
from flowql.compiler.functions.registry import lookup
from flowql.compiler.plan.types import STRING
from flowql.compiler.streams.expression import Renaming, calls_in, fold, names_in, renamed


def known_name(written: str, known: Collection[str], case: str) -> str | None:
    """The name that is meant among those that exist."""
    spellings = (written, fold(written, case), written.upper(), written.lower())
    return next((s for s in spellings if s in known), None)


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves names in expressions of Python. clause: the method that was given them, for messages."""

    catalog: Catalog
    clause: str

    def name(self, written: str) -> str:
        """The name of a new column, folded as the dialect does."""
        return fold(written, self.catalog.fold)

    def column(self, draft: Draft, name: Name) -> str:
        """A column of the draft, or one of the record, by the name that the draft has for it. Raises CompileError."""
        written = name.parts[0]
        found = known_name(written, draft.items, self.catalog.fold)
        if found is None:
            found = next((n for n in (*PSEUDO, *BOUNDS) if n == written.upper()), None)
        if found is not None:
            return found
        columns = tuple(ScopeColumn("", n, STRING, n, "value") for n in draft.items)
        resolve(Scope(columns, ("",)), Name((self.name(written),), name.span), self.clause)
        raise AssertionError("the name is not known")

    def terms(self, draft: Draft, written: Sequence[Ast], *, grouped: bool = False) -> tuple[Draft, list[Ast]]:
        """Expressions in terms of the sources of the draft that is returned: of this one, or one around it.

        grouped: they may have aggregates and the like in the place of columns, since they stay in the same SELECT.
        """
        found = {self.column(draft, n) for ast in written for n in names_in(ast)}
        if not self._fits(draft, found, grouped=grouped):
            draft = around(draft)
        return draft, [self.within(draft, ast) for ast in written]

    def exploded(self, draft: Draft) -> Draft:
        """The draft, or one around it where it has table functions: their rows are there whichever columns are chosen of them."""
        return around(draft) if any(map(self._is_table_function, calls_in(draft.items.values()))) else draft

    def _is_table_function(self, name: str) -> bool:
        found = self.catalog.function(name) or lookup(function_name(name, standard=self.catalog.standard))
        return found is not None and found.table

    def names_row(self, draft: Draft, written: Sequence[Ast]) -> bool:
        """Whether expressions name ROWTIME or its like, which are of the row and no columns of the draft."""
        return any(self.column(draft, n) not in draft.items for ast in written for n in names_in(ast))

    def within(self, draft: Draft, ast: Ast, qualifier: Sequence[str] = ()) -> Ast:
        """In terms of the sources of the draft. qualifier: in front of names of columns, where the draft is a side of a join."""

        def column(name: Name) -> Ast:
            found = self.column(draft, name)
            if qualifier:
                inner = draft.inner_name(found) if found in draft.items else found
                return Name((*qualifier, inner), name.span)
            expr = draft.items.get(found)
            if expr is None or (isinstance(expr, Name) and len(expr.parts) == 1):
                return Name((found,) if expr is None else expr.parts, name.span)
            return Name(expr.parts, name.span) if isinstance(expr, Name) else expr

        return renamed(ast, Renaming(column, self._type, self.name))

    def _fits(self, draft: Draft, names: Iterable[str], *, grouped: bool) -> bool:
        of_row = [n for n in names if n not in draft.items]
        if of_row and not draft.names_rows:
            return False
        return (grouped and bool(draft.group_by)) or all(is_plain(draft.items[n]) for n in names if n in draft.items)

    def _type(self, ref: TypeRef) -> TypeRef:
        """A type whose text is as written."""
        if ref.known is not None:
            return ref
        try:
            parsed = parse_type(SourceText("", ref.name), "standard" if self.catalog.standard else "ksql")
            return _placed(parsed, ref.span)
        except CompileError as error:
            title = f"{self.clause}: {ref.name!r} is not a type"
            why = error.diagnostics[0].title
            raise mistake(
                "FQ2005", title, ref.span, "not a type", why=why, help='cast("DOUBLE"), cast(float)'
            ) from None


def _placed(ref: TypeRef, at: Span) -> TypeRef:
    """With the place of the text that it was parsed from."""
    return replace(with_children(ref, lambda part: _placed(part, at)), span=at)
