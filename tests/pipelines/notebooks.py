"""Notebooks of pipelines, carried out by a kernel of this environment.

    python -m tests.pipelines.notebooks pipelines/sensors/sensors.ipynb

writes what comes out into the notebook, without what is of one machine or one run; look at the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELL_TIMEOUT_S = 120
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(file: Path) -> nbformat.NotebookNode:
    return nbformat.read(file, as_version=4)


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The file, with a line feed at its end."""
    return f"{nbformat.writes(notebook)}\n"


def executed(file: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs that come out now, in the form in which it is kept."""
    notebook = read(file)
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(file.parent)}},
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    return kept(notebook)


def kept(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without versions, times and settings of who ran it; cells keep their tags."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "tags"})
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(text_of(executed(Path(name).resolve())), encoding="utf-8")
