"""What tests of imports share: scripts as texts, replayed and compiled as the project they become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.schemas.ref import NO_SCHEMAS, SchemaLookup
from flowql.config.load import read_project
from flowql.ksqldb.project import Imported, Wishes, project_of
from flowql.ksqldb.replay import Replay
from flowql.ksqldb.scripts import Found, Script

_NOTHING: Mapping[str, str] = {}


def replayed(
    *texts: str, variables: Mapping[str, str] = _NOTHING, lenient: bool = False, registry: SchemaLookup = NO_SCHEMAS
) -> Replay:
    """Scripts `1.sql`, `2.sql`, ... applied in order."""
    scripts = [Script(SourceText(f"{n}.sql", t), Path(f"{n}.sql")) for n, t in enumerate(texts, 1)]
    replay = Replay(Found(scripts), variables, registry, lenient=lenient)
    replay.run()
    return replay


def imported(*texts: str, **options: object) -> Imported:
    replay = replayed(*texts, **options)  # type: ignore[arg-type]
    assert not replay.mistakes, [f"{d.code} {d.span.line} {d.title}" for d in replay.mistakes]
    return project_of(replay, Wishes("demo"))


def mistakes(*texts: str) -> list[Diagnostic]:
    return replayed(*texts).mistakes


def written(made: Imported, folder: Path) -> Path:
    for path, text in made.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def compiled(made: Imported, folder: Path, registry: SchemaLookup = NO_SCHEMAS) -> Compiled:
    """The project as its own files say it, read back from disk."""
    project = read_project(written(made, folder))
    assert not project.diagnostics, [d.title for d in project.diagnostics]
    result = compile_project(
        project.sources,
        dialect=project.dialect,
        properties=project.properties,
        overrides=project.overrides,
        variables=project.variables,
        registry=registry,
    )
    assert result.ok, [f"{d.code} {d.span.path}:{d.span.line} {d.title}" for d in result.diagnostics]
    return result


def texts(made: Imported) -> list[str]:
    """The notes, as `kind line text`."""
    return [f"{n.kind} {n.span.line} {n.text}" for n in made.notes]
