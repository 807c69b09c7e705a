"""A release has one version in all places, and the metadata names the Pythons it runs on."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.tidy.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RELEASE = (ROOT / ".github/workflows/release.yml").read_text("utf-8")


def test_the_changelog_begins_with_the_version() -> None:
    """A section has a day, as the workflow of a release wants it."""
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first is not None
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} - \d{{4}}-\d\d-\d\d", first[1])


def test_the_pythons_of_the_metadata_are_those_of_a_release() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert re.findall(r"--python python(\S+)", RELEASE) == named
    jobs = yaml.safe_load(RELEASE)["jobs"]
    assert sorted(jobs["build"]["steps"][1]["with"]["python-version"].split()) == named


def test_the_index_gets_what_was_tested_without_a_password() -> None:
    jobs = yaml.safe_load(RELEASE)["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in RELEASE
