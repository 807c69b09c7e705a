"""`flowql init`: a small project that works, from a template."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import typer

from flowql.cli.render import print_text
from flowql.config.load import shown_path
from flowql.errors import CommandError

_RANK = {suffix: n for n, suffix in enumerate((".yaml", ".sql", ".jsonl", ".md"))}
_STEPS = re.compile(r"```\n(.*?)```", re.DOTALL)


Template = Literal["quickstart", "ksqldb", "blank", "kafka", "spark"]  # folders below `templates`
Folder = Annotated[Path, typer.Argument(help="Folder; created if missing.", metavar="[DIR]", show_default="here")]
TemplateOption = Annotated[
    Template,
    typer.Option(
        "--template",
        help="quickstart: standard SQL with sources, queries, a test and data; ksqldb: in ksqlDB's dialect; "
        "blank: empty; kafka: quickstart on Kafka; spark: ksqldb on Spark.",
    ),
]


def command(folder: Folder = Path("."), template: TemplateOption = "quickstart") -> None:
    """Create a small working project.

    Prints the next commands.

    flowql init shop                       in standard SQL
    flowql init shop --template ksqldb     in ksqlDB's dialect
    flowql init shop --template kafka      on Apache Kafka
    """
    name = re.sub(r"\W+", "_", folder.resolve().name).strip("_") or "project"
    files = {path: text.replace("__NAME__", name) for path, text in _files(template)}
    there = [n for n in files if (folder / n).exists()]
    if there:
        title = f"{shown_path(folder)} has {', '.join(there)} already: nothing was written"
        raise CommandError(title, code="FQ5004", help="choose another folder:  flowql init my_project")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    steps = _STEPS.search(files["README.md"])
    assert steps is not None, "each template's README says what to type"
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder}\n"
    print_text(
        f"a project in {folder}: {', '.join(files)}\n\nnow type:\n"
        + "".join(f"  {s}\n" for s in (enter + steps[1]).splitlines())
    )


def _files(template: Template) -> list[tuple[str, str]]:
    """Paths in the project, and their texts; flowql.yaml first."""
    root = resources.files("flowql.cli") / "templates" / template
    found = [(path.replace("gitignore", ".gitignore"), file.read_text(encoding="utf-8")) for path, file in _below(root)]
    return sorted(found, key=lambda f: _reading_order(f[0]))


def _reading_order(path: str) -> tuple[object, ...]:
    return path.startswith("."), path.count("/"), _RANK.get(Path(path).suffix, len(_RANK)), path != "sources.sql", path


def _below(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _below(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry))
    return found
