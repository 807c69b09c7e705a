"""A notebook is kept as `python -m tests.pipelines.notebooks` writes it: run from the top, and without what is of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.pipelines.notebooks import METADATA, kept, read, text_of
from tests.tidy import tree

NOTEBOOKS = [path for path in tree.own_files() if path.suffix == ".ipynb"]


def breaches(file: Path) -> list[str]:
    """What a notebook has that it should not have, or the other way round."""
    notebook = read(file)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    wrong = [
        f"cell {c.id} is number {c.execution_count}, not {n}" for n, c in enumerate(code, 1) if c.execution_count != n
    ]
    for cell in code:
        has_failed = any(output.output_type == "error" for output in cell.outputs)
        if has_failed != ("raises-exception" in cell.metadata.get("tags", ())):
            wrong.append(f"cell {cell.id} fails, or is marked to fail, and not both")
    if file.read_text(encoding="utf-8") != text_of(kept(notebook)):
        wrong.append("it has metadata, or another form")
    return wrong


def notebook_of(**changed: Any) -> str:
    cell: dict[str, Any] = {"cell_type": "code", "id": "one", "metadata": {}, "source": "1", "outputs": []}
    cell |= {"execution_count": 1} | changed
    return text_of(nbformat.from_dict({"metadata": METADATA, "nbformat": 4, "nbformat_minor": 5, "cells": [cell]}))


ERROR = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (notebook_of(), 0),
        (notebook_of(execution_count=7), 1),
        (notebook_of(metadata={"execution": {"iopub.execute_input": "2026-01-01"}}), 1),
        (notebook_of(outputs=[ERROR]), 1),
        (notebook_of(metadata={"tags": ["raises-exception"]}), 1),
        (notebook_of(outputs=[ERROR], metadata={"tags": ["raises-exception"]}), 0),
        (notebook_of().replace('"name": "python"\n', '"name": "python",\n   "version": "3.11"\n'), 1),
        (notebook_of().replace("\n ", "\n  "), 1),
    ],
)
def test_the_rule_finds_what_it_should(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    assert len(breaches(tmp_path / "a.ipynb")) == expected


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_a_notebook_says_nothing_of_a_machine(path: Path) -> None:
    assert not breaches(tree.ROOT / path), f"type  .venv/bin/python -m tests.pipelines.notebooks {path}"


def test_lines_of_a_notebook_are_those_of_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the file, in which a line feed is an n."""
    output = {"output_type": "stream", "name": "stdout", "text": "a\n/b\n"}
    text = notebook_of(outputs=[{**output, "text": [output["text"]]}])
    monkeypatch.setattr(tree, "text_of", lambda path: text)
    found = list(tree.lines_of(Path("a.ipynb")))
    assert ("cell one", "/b") in found
    assert ("notebook", "kernelspec") in found
    assert next(tree.lines_of(Path("a.py"))) == ("1", "{")
