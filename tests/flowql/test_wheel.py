"""What is installed from the built distributions: one importable name, beside whatever modules a user has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.distribution import build_wheel
from tests.tidy.tree import PACKAGES, ROOT, lines_of, modules, own_files

pytestmark = [pytest.mark.slow, pytest.mark.turns("long")]
USERS = {
    "compiler/__init__.py": "OWN = True\n",
    "runtime.py": "OWN = True\n",
    "tests/__init__.py": "",
    "own.py": "import compiler, runtime, flowql\nassert compiler.OWN and runtime.OWN\nprint(flowql.__file__)\n",
}


def program(*arguments: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def test_a_wheel_holds_every_module_under_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert {n.split("/")[0] for n in names} == {"flowql"}
    ours = {p if p.parts[0] == "flowql" else Path("flowql") / p for p in modules(*PACKAGES)}
    assert {Path(n) for n in names if n.endswith(".py")} == ours
    data = {
        p
        for p in own_files()
        if p.parts[0] == "flowql" and (p.name in ("py.typed", "schema.json") or {"templates", "queries"} & set(p.parts))
    }
    assert {Path(n) for n in names if not n.endswith(".py")} >= data
    assert {"flowql/compiler/py.typed", "flowql/runtime/py.typed"} <= names


def test_a_user_may_have_modules_of_the_same_names(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for name, text in USERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = os.pathsep.join([str(installed), str(folder)])
    assert program("own.py", folder=folder, path=path).stdout.startswith(str(installed))
    for command in (
        ("init", "shop"),
        ("test",),
        ("topic", "import", "orders", "orders.jsonl", "--key", "customer", "--timestamp", "ordered_at"),
        ("run", "--until-caught-up"),
        ("query", "SELECT * FROM spent_per_hour"),
    ):
        done = program("-m", "flowql", *command, folder=folder if command[0] == "init" else folder / "shop", path=path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_the_benchmark_runs_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    """It said: run this in a checkout."""
    words = ("bench", "nexmark", "--queries", "q2", "--events", "3000")
    done = program("-m", "flowql", *words, folder=tmp_path, path=str(installed))
    assert done.returncode == 0, done.stderr
    assert "q2: equal to the oracle" in done.stderr


def test_the_folders_are_no_modules_by_themselves() -> None:
    """A second copy of a module has registries and classes of its own: what one copy registers, the other does not find."""
    for name in ("compiler.plan", "runtime.app"):
        refused = program("-c", f"import {name}", folder=ROOT)
        assert f"ImportError: import flowql.{name.split('.')[0]}" in refused.stderr


def test_no_text_imports_the_folders_by_themselves() -> None:
    """Programs in strings and documents, too."""
    named = re.compile(r"\b(?:from|import|-m) (?:compiler|runtime)\b(?= import|\.\w)")
    wrong = [
        f"{path}:{place}"
        for path in own_files()
        if path.suffix in (".ipynb", ".md", ".py", ".sh", ".toml", ".yaml")
        and path != Path("tests/flowql/test_wheel.py")
        for place, line in lines_of(path)
        if named.search(line)
    ]
    assert not wrong
