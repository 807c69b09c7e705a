"""Secrets of settings by reference. A setting that refers to its value is a string that says where the value is; programs that show,
store or send settings have this string. `revealed` reads the value where it is used.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from flowql.runtime.errors import RuntimeFailure

Kind = Literal["env", "file", "command"]
COMMAND_S = 30.0
_MARK = "secret reference "


class SecretMissing(RuntimeFailure, code="FQ3022"):
    """A secret that cannot be read. The text says where it was looked for, and never what was there."""


def reference(kind: Kind, where: str | list[str], folder: Path) -> str:
    """A setting with this reference. where: name of an environment variable, path of a file, or a command with its arguments; folder: that
    relative paths and commands start in, absolute.
    """
    return _MARK + json.dumps([kind, where, str(folder)])


def is_reference(setting: str) -> bool:
    return setting.startswith(_MARK)


def revealed(setting: str) -> str:
    """The value of a setting: what it refers to, or itself. Each reference is read once in a process. Raises SecretMissing."""
    return _read(setting) if is_reference(setting) else setting


@lru_cache(maxsize=1_000)
def _read(setting: str) -> str:
    kind, where, folder = json.loads(setting.removeprefix(_MARK))
    match kind:
        case "env":
            found = _of_environment(where)
        case "file":
            found = _of_file(where, folder)
        case _:
            found = _of_command(where, folder)
    value = found.removesuffix("\n").removesuffix("\r")
    if not value:
        raise SecretMissing(f"the secret is empty: {_shown(kind, where)}")
    return value


def _of_environment(name: str) -> str:
    if name not in os.environ:
        raise SecretMissing(f"the environment has no variable {name}, which a secret refers to")
    return os.environ[name]


def _of_file(path: str, folder: str) -> str:
    try:
        return (Path(folder) / Path(path).expanduser()).read_text(encoding="utf-8")
    except OSError as error:
        raise SecretMissing(f"{_shown('file', path)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretMissing(f"{_shown('file', path)} is not UTF-8 text") from None


def _of_command(command: list[str], folder: str) -> str:
    """Keeps the output to itself, also on failure: it may be the secret."""
    shown = _shown("command", command)
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
        if done.returncode:
            raise SecretMissing(f"{shown} exits with {done.returncode}")
        return done.stdout.decode()
    except OSError as error:
        raise SecretMissing(f"{shown} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SecretMissing(f"{shown} takes more than {COMMAND_S:.0f} s") from None
    except UnicodeDecodeError:
        raise SecretMissing(f"{shown} prints no UTF-8 text") from None


def _shown(kind: Kind, where: str | list[str]) -> str:
    """The arguments of a command may hold what is private."""
    names: Mapping[str, str] = {"env": "variable", "file": "secret file", "command": "secret command"}
    return f"{names[kind]} {where if isinstance(where, str) else where[0]}"
