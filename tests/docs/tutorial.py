"""The pages of the guide to Python, typed in their order from the first line: an empty environment, `pip install`, a new project, and a session of Python."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path

from tests.docs.tour import ROOT, Shell, blocks, commands

GUIDE = ROOT / "docs" / "guide"
NAMES = ("python", "python/functions", "python/aggregates", "python/asynchronous", "python/processors", "python/remote")
PAGES = "\n".join((GUIDE / f"{name}.md").read_text(encoding="utf-8") for name in NAMES)
PORT = "8321"  # of the pages; it may be taken
# Carried out in the new environment, which has neither the tests nor their packages. With -c, modules are found in the current folder, as in a session.
SESSION = """
import doctest, sys
examples = doctest.DocTestParser().get_doctest(open(sys.argv[1], encoding="utf-8").read(), {}, "python.md", "python.md", 0)
print(doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(examples))
"""


def type_page(
    folder: Path,
    wheel: Path,
    python: str,
    *,
    made: Callable[[Path], None] = lambda environment: None,
    variables: tuple[tuple[str, str], ...] = (),
) -> str:
    """What comes out otherwise than the pages show; empty if nothing does.

    folder: empty. python: what environments are made with. made: called with the environment before anything is installed there. variables: of pip.
    """
    (programs := folder / "programs").mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    (programs / "python").chmod(0o755)
    (folder / "wheel.txt").write_text(f"flowql @ {wheel.as_uri()}\n")  # whatever the index has of that name
    (folder / "page.md").write_text(PAGES.replace(PORT, str(free_port())), encoding="utf-8")
    [setup] = blocks(PAGES, "console")
    *typed, session = commands(setup)
    assert session == ("python", "")
    settings = dict(variables) | {"PIP_CONSTRAINT": str(folder / "wheel.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    shell = Shell(folder, programs=programs, variables=settings)
    try:
        for command, expected in typed:
            if (output := shell.type(command)) != expected:
                return f"$ {command}\n{output}"
            if command.startswith("python -m venv "):
                made(folder / command.split()[-1])
        output = shell.type(f"python -c {shlex.quote(SESSION)} {shlex.quote(str(folder / 'page.md'))}")
        if not _passed(output):
            return output
        return "".join(f"still running: {file}\n" for file in folder.glob("shop/.flowql/**/instance.json"))
    finally:
        shell.close()


def _passed(output: str) -> bool:
    return output.startswith("TestResults(failed=0, attempted=") and "attempted=0" not in output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
