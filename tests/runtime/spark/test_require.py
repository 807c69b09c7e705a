"""Messages where Spark is missing or of another version; no Spark is started."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from flowql.runtime.spark import session as subject
from flowql.runtime.spark.errors import SettingRefused, SparkMissing, SparkVersion
from flowql.runtime.spark.session import open_session, require_spark
from flowql.runtime.spark.settings import SparkSettings


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name in modules else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def versions(monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    known = {"pyspark": f"{subject.PYSPARK_VERSION}.0", "pandas": "2.3.3"} | given
    monkeypatch.setattr(metadata, "version", known.__getitem__)
    monkeypatch.setattr(subject, "_installed", lambda module: True)
    monkeypatch.setattr(subject, "find_java", lambda environment: None)


def test_a_missing_extra_has_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyspark", "google.protobuf")
    with pytest.raises(SparkMissing) as caught:
        require_spark()
    assert "need" in caught.value.title
    assert "pyspark and" in caught.value.title
    assert "protobuf" in caught.value.title
    assert caught.value.help == "make setup"  # this is a checkout


def test_outside_a_checkout_it_is_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide(monkeypatch, "pyspark")
    monkeypatch.setattr(subject, "__file__", str(tmp_path / "flowql" / "runtime" / "spark" / "session.py"))
    with pytest.raises(SparkMissing) as caught:
        require_spark()
    assert caught.value.help == "pip install 'flowql[spark]'"


@pytest.mark.parametrize(("package", "version"), [("pyspark", "3.5.1"), ("pyspark", "4.20.0"), ("pandas", "3.1.1")])
def test_another_version(monkeypatch: pytest.MonkeyPatch, package: str, version: str) -> None:
    versions(monkeypatch, **{package: version})
    with pytest.raises(SparkVersion, match=f"{package} {version} is installed"):
        require_spark()


def test_a_patch_of_the_version_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, pyspark=f"{subject.PYSPARK_VERSION}.9")
    require_spark()


@pytest.mark.parametrize("conf", [{"spark.sql.session.timeZone": "PST"}, {"spark.master": "yarn"}])
def test_properties_that_are_not_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conf: dict[str, str]
) -> None:
    versions(monkeypatch)
    with pytest.raises(SettingRefused, match=next(iter(conf))):
        open_session(SparkSettings(conf=conf), "x", tmp_path)
    assert not list(tmp_path.iterdir())
