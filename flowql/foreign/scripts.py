"""The statements of some files in FlowQL, and those that have no translation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.cursor import Positions
from flowql.compiler.dialect.foreign.kinds import kind_of_type
from flowql.compiler.dialect.foreign.reading import Piece, pieces
from flowql.compiler.dialect.foreign.translate import translate
from flowql.compiler.dialect.foreign.untranslated import Problem, Untranslated
from flowql.compiler.driver import Session
from flowql.compiler.plan.types import Kind, SqlType

CONSTRUCT, NOT_COMPILED = "FQ1016", "FQ1017"
_KINDS = {
    Kind.BOOLEAN: "BOOLEAN", Kind.INT: "INT", Kind.BIGINT: "BIGINT", Kind.DOUBLE: "DOUBLE", Kind.DECIMAL: "DECIMAL", Kind.STRING: "TEXT", Kind.BYTES: "BINARY",
    Kind.DATE: "DATE", Kind.TIME: "TIME", Kind.TIMESTAMP: "TIMESTAMP", Kind.ARRAY: "ARRAY", Kind.MAP: "MAP", Kind.STRUCT: "STRUCT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one statement. text: in FlowQL, "" if it is not translated; then `listed` says why. span: its first word."""

    span: Span
    text: str = ""
    listed: tuple[Diagnostic, ...] = ()


@dataclass(slots=True)
class Translated:
    """The outcomes of all statements, in order."""

    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def listed(self) -> list[Diagnostic]:
        """Why statements are not translated."""
        return [d for o in self.outcomes for d in o.listed]

    def counts(self, path: str) -> tuple[int, int]:
        """The numbers of translated and of listed statements of a file."""
        own = [o for o in self.outcomes if o.span.path == path]
        return sum(1 for o in own if o.text), sum(1 for o in own if not o.text)

    def script(self) -> str:
        """The translated statements; a comment stands where one is missing."""
        return "\n".join(_written(o) for o in self.outcomes)


def _written(outcome: Outcome) -> str:
    if outcome.text:
        return f"{outcome.text};\n"
    titles = "; ".join(d.title for d in outcome.listed)
    return f"-- {outcome.span.path}:{outcome.span.line} is not translated: {titles}\n"


def translated(sources: Sequence[SourceText], dialect: str) -> Translated:
    """Every statement of the files in FlowQL's standard dialect. Each is compiled against those before it; one that does not compile is listed.

    dialect: one of `compiler.dialect.foreign.dialects.NAMES`.
    """
    script = _Script(dialect)
    for source in sources:
        script.read(source)
    return script.done


class _Script:
    """Translates and compiles one statement after the other."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._session = Session(dialect="standard")
        self.done = Translated()

    def read(self, source: SourceText) -> None:
        positions = Positions(source)
        found, unread = pieces(source.text, self._dialect)
        if unread is not None:
            span = positions.span(unread.start, unread.end)
            self.done.outcomes.append(Outcome(span, listed=(_listed(unread, positions),)))
        for piece in found:
            self.done.outcomes.append(self._outcome(source, piece, positions))

    def _outcome(self, source: SourceText, piece: Piece, positions: Positions) -> Outcome:
        span = positions.span(piece.start, piece.tokens[0].end + 1 if piece.tokens else piece.start + 1)
        try:
            text = translate(piece, source.text, self._dialect, self._columns)
        except Untranslated as error:
            return Outcome(span, listed=tuple(_listed(p, positions) for p in _once(error.problems)))
        try:
            self._compile(text)
        except CompileError as error:
            return Outcome(span, listed=tuple(_not_compiled(d, span) for d in error.diagnostics))
        return Outcome(span, text)

    def _compile(self, text: str) -> None:
        """Raises CompileError."""
        source = SourceText("", text)
        if self._session.asked(source) is None:
            self._session.execute(source)

    def _columns(self, name: str) -> Mapping[str, str] | None:
        source = self._session.catalog.sources.get(name)
        return {f.name: _kind(f.type, self._dialect) for f in source.shown} if source is not None else None


def _kind(type_: SqlType, dialect: str) -> str:
    if type_.form:  # JSONB and its like are strings by kind
        return "json" if type_.form == "JSONB" else ""
    return kind_of_type(_KINDS.get(type_.kind, ""), type_.scale, dialect)


def _once(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The same construct at the same place is listed once."""
    yield from {(p.start, p.construct): p for p in problems}.values()


def _listed(problem: Problem, positions: Positions) -> Diagnostic:
    span = positions.span(problem.start, problem.end)
    return Diagnostic(CONSTRUCT, f"{problem.construct} is not translated", span, why=problem.why, help=problem.help)


def _not_compiled(found: Diagnostic, span: Span) -> Diagnostic:
    """The compiler's messages about the translated text, shown at its statement."""
    return Diagnostic(
        NOT_COMPILED,
        f"the translated statement does not compile: {found.title}",
        span,
        why=found.why or found.label,
        help=found.help,
    )
