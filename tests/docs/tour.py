"""Pages whose commands are typed, in order, in an empty folder: what comes out is what the page shows.

    python -m tests.docs.tour docs/guide/querying.md

writes what comes out into a page instead; look at the difference. Only what no two readers share is made equal: process ids and
durations. After `topic produce` (in the guide to querying also after `deploy`) the tour waits until the running instance has read
everything, as a person who types has.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".venv" / "bin" / "flowql"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
END = "-- end of the command --"
WAIT_S = 60.0
SETTLE_AFTER = ("flowql topic produce", "flowql deploy")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, output) of a console block; lines that begin with `> ` go on with the command."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


class Shell:
    """A bash in an empty folder next to an environment, as a user has it; commands are typed one after the other."""

    def __init__(
        self,
        folder: Path,
        settle_after: tuple[str, ...] = ("flowql topic produce",),
        *,
        programs: Path | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """programs: a folder for the path, in place of the environment."""
        self.folder, self._settle_after = folder, settle_after
        # Output in the order it is written, without colours.
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "100", **variables}
        if programs is None:
            (folder / ".venv").symlink_to(ROOT / ".venv")
        else:
            for name in ("PYTHONPATH", "VIRTUAL_ENV"):
                env.pop(name, None)
        env["PATH"] = f"{programs or PROGRAM.parent}{os.pathsep}{env['PATH']}"
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=env,
            text=True,
        )

    def type(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho '{END}'\n")
        self._bash.stdin.flush()
        lines = []
        for line in self._bash.stdout:
            if line.endswith(f"{END}\n"):  # also behind a last line without an end
                lines.append(line.removesuffix(f"{END}\n"))
                if command.startswith(self._settle_after):
                    self._settle()
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"bash ended at {command!r}: {''.join(lines)}")

    def _settle(self) -> None:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            queries = json.loads(self.type("flowql status -o json"))["queries"]
            if all(q["lag"] == 0 for q in queries):
                time.sleep(0.5)  # what is processed is committed within 100 ms
                return

    def close(self) -> None:
        self._bash.communicate(f"cd '{self.folder}/shop' && flowql stop\n", timeout=60)


def equalised(output: str) -> str:
    output = re.sub(r"\bprocess \d+", "process 4711", output)
    output = re.sub(r"\b\d+ commits\b", "2 commits", output)
    return re.sub(r"\b\d+\.\d s\b", "0.2 s", output)


def without_figures(output: str) -> str:
    """Words alone: of pictures that show other numbers at every look, and may have none yet."""
    output = re.sub(r"\d[\d.:-]*\s?(?:ms|[smhd]|[KMGk]|%|in/s)?(?![A-Za-z_])", "#", output)
    return re.sub(
        r"(?:(?<=\s)|(?<=/))(?:-|<#)(?=[\s/])",
        "#",
        re.sub(r"\s+", " ", output).replace("#/-", "#/#").replace("-/#", "#/#"),
    )


def filled(page: str, folder: Path) -> str:
    """The page with the outputs that come out now."""
    shell = Shell(folder, SETTLE_AFTER)
    try:

        def fill(match: re.Match[str]) -> str:
            parts = []
            for command, _ in commands(match.group(1)):
                typed = command.replace("\n", "\n> ")
                parts.append(f"$ {typed}\n{equalised(shell.type(command))}")
            return f"```console\n{''.join(parts)}```"

        return CONSOLE.sub(fill, page)
    finally:
        shell.close()


def write(file: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        file.write_text(filled(file.read_text(encoding="utf-8"), Path(made)), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
