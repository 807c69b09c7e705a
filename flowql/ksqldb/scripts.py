"""The files of an import: scripts, folders of scripts, folders of migrations, and a server's properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.dialect.cursor import Positions, Tok
from flowql.compiler.dialect.tokens import split_statements, tokenize
from flowql.config.load import shown_path
from flowql.ksqldb.notes import Note

UNREADABLE = "FQ5020"
_MIGRATION = re.compile(r"V(\d{6})__(.+)\.sql")
_SERVER = "ksql-server"
_MIGRATIONS_TOOL = "ksql-migrations"


@dataclass(frozen=True, slots=True)
class Script:
    """One file of statements: in ksqlDB a session of its own, with its own variables and properties."""

    source: SourceText
    file: Path
    version: int | None = None


@dataclass(slots=True)
class Found:
    """The content of the named files. server: properties of a ksqlDB server, each with its place."""

    scripts: list[Script] = field(default_factory=list)
    server: dict[str, tuple[str, Span]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    mistakes: list[Diagnostic] = field(default_factory=list)


def find_scripts(paths: Sequence[Path]) -> Found:
    """Read what is named, in order. A folder stands for its migrations by version, else for its .sql files by name."""
    found = Found()
    for path in paths:
        if path.is_dir():
            _folder(path, found)
        elif path.suffix == ".properties":
            _properties(path, found)
        else:
            _script(path, found)
    return found


def _folder(path: Path, found: Found) -> None:
    inner = path / "migrations"
    folder = inner if inner.is_dir() and not any(_MIGRATION.fullmatch(f.name) for f in path.iterdir()) else path
    files = sorted(f for f in folder.iterdir() if f.suffix == ".sql")
    versions = {f: int(m[1]) for f in files if (m := _MIGRATION.fullmatch(f.name))}
    for properties in sorted(path.glob(f"{_SERVER}*.properties")):
        _properties(properties, found)
    if not files:
        _wrong(found, f"{shown_path(path)} has no .sql files", help_="name a script, or a folder of migrations")
    if not versions:
        for f in files:
            _script(f, found)
        return
    for f in sorted(versions, key=versions.__getitem__):
        same = next((o for o in versions if o < f and versions[o] == versions[f]), None)
        if same is not None:
            title = f"two migrations have the version {versions[f]}: {same.name} and {f.name}"
            _wrong(found, title, Span(shown_path(f), 1, 1), help_="give one of them the next number")
        _script(f, found, versions[f])
    for f in files:
        if f not in versions:
            text = "the name is not that of a migration (V000001__what_it_does.sql), so the file is not read"
            found.notes.append(Note("left out", text, Span(shown_path(f), 1, 1), "rename it, or name it by itself"))


def _script(path: Path, found: Found, version: int | None = None) -> None:
    text = _text(path, found)
    if text is not None:
        found.scripts.append(Script(SourceText(shown_path(path), text), path, version))


def _properties(path: Path, found: Found) -> None:
    """Java properties: `name=value` per line; `#` and `!` begin comments; a backslash at the end goes on."""
    if path.stem == _MIGRATIONS_TOOL:
        return  # where the tool finds its server
    text = _text(path, found)
    lines = (text or "").split("\n")
    n = 0
    while n < len(lines):
        first, line = n, lines[n].strip()
        while line.endswith("\\") and n + 1 < len(lines):
            n += 1
            line = line[:-1] + lines[n].strip()
        name, _, value = re.sub(r"\s*[=:]\s*|\s+", "\0", line, count=1).partition("\0")
        if name and name[0] not in "#!":
            found.server[name] = value, Span(shown_path(path), first + 1, 1, len(lines[first]), lines[first])
        n += 1


def _text(path: Path, found: Found) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = did_you_mean(path.name, [f.name for f in path.parent.iterdir()]) if path.parent.is_dir() else ""
        _wrong(found, f"{shown_path(path)} does not exist", help_=near)
    except OSError as e:
        _wrong(found, f"{shown_path(path)} cannot be read: {e.strerror}")
    except UnicodeDecodeError as e:
        _wrong(found, f"{shown_path(path)} is not UTF-8 text (byte {e.start})")
    return None


def _wrong(found: Found, title: str, span: Span = NOWHERE, help_: str = "") -> None:
    found.mistakes.append(Diagnostic(UNREADABLE, title, span, help=help_))


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """One statement of a script.

    source: its text alone, at its place. start: where it begins in `source`. comment: the comments above it.
    after: a comment behind its semicolon. tokens: without the semicolon.
    """

    source: SourceText
    start: int
    tokens: tuple[Tok, ...]
    span: Span
    comment: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return self.source.text[self.start :]

    @property
    def words(self) -> tuple[str, ...]:
        """Upper case, as far as they are words."""
        return tuple(t.upper for t in self.tokens)


def pieces(source: SourceText) -> tuple[list[ScriptStatement], Diagnostic | None]:
    """The statements of a script, and what is wrong when a quote or comment never ends."""
    positions = Positions(source)
    tokens, unclosed = tokenize(source, positions)
    groups = [g[:-1] for g in split_statements(tokens)]
    if unclosed is not None and tokens and tokens[-1].text != ";":
        groups.pop()
    gaps = list(_gaps(source.text, groups))
    return [
        _piece(source, positions, group, comment, after)
        for group, (comment, _), (_, after) in zip(groups, gaps, gaps[1:], strict=False)
    ], unclosed


def _gaps(text: str, groups: Sequence[Sequence[Tok]]) -> Iterator[tuple[str, str]]:
    """Before each statement and after the last: comments that belong to the next one, and to the one before."""
    end = 0
    for group in groups:
        yield _comments(text[end : group[0].start], first=end == 0)
        end = group[-1].end
    yield _comments(text[end:], first=end == 0)


def _comments(gap: str, *, first: bool) -> tuple[str, str]:
    head, line_end, rest = ("", "", gap) if first else gap.partition("\n")
    after = head.replace(";", "", 1).strip()
    if not line_end and not first:  # the next statement begins on the same line
        return after, ""
    lines = [line.rstrip() for line in rest.lstrip("\n ;").rstrip().split("\n")]
    while "" in lines:  # of several blocks the last one is about the statement; those above are about the file
        lines.remove("")
    return "\n".join(lines), after


def _piece(source: SourceText, positions: Positions, group: Sequence[Tok], comment: str, after: str) -> ScriptStatement:
    start, end = group[0].start, group[-1].end
    line = source.text.rfind("\n", 0, start) + 1
    before = re.sub(r"\S", " ", source.text[line:start])
    offset = source.line_offset + source.text.count("\n", 0, start)
    text = SourceText(source.path, before + source.text[start:end], line_offset=offset)
    return ScriptStatement(text, start - line, tuple(group), positions.span(start, end), comment, after)


def included(piece: ScriptStatement, script: Script, found: Found) -> Script | None:
    """The script that RUN SCRIPT names, relative to the one it stands in."""
    if len(piece.tokens) != 3 or piece.tokens[2].kind != "string":
        _wrong(found, "RUN SCRIPT takes a path in quotes", piece.span, "RUN SCRIPT 'more.sql'")
        return None
    path = script.file.parent / piece.tokens[2].text
    if not path.is_file():
        _wrong(found, f"{shown_path(path)} does not exist", piece.span)
        return None
    text = _text(path, found)
    return None if text is None else Script(SourceText(shown_path(path), text), path, script.version)


def variables_of(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """The variables a text names that have a value, by their names as written."""
    folded = {n.upper(): v for n, v in known.items()}
    return {m: folded[m.upper()] for m in re.findall(r"\$\{(\w+)\}", text) if m.upper() in folded}
