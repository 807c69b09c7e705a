"""Mutants are one small change each, and of behaviour."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import draw, judges_of
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.judge import Calls, first_line_of_function
from tests.mutants.mutate import mutants
from tests.tidy.tree import ROOT


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a is None and b", ["x = (a is None or b)", "x = (a is not None) and b"]),
        ("x = not a", ["x = (a)"]),
        ("x = 3", ["x = 4"]),
        ("x = f(on=True)", ["x = f(on=False)"]),
        ("def f(a: int = 2):\n    return a", ["    return None"]),
        ("def f():\n    return False", ["    return True"]),
        ("def f():\n    return ''", ['    return "mutant"']),
        ("x = field(compare=False, repr=False)", ["x = field(compare=True, repr=False)"]),
        ("self.x = y", ["pass"]),
        ("x += y", ["pass"]),
        ("go('é', x)", ["pass"]),
        ("x = 'é' + f(1)", ["x = 'é' + f(2)"]),
        ("assert a < 2", []),
        ("raise E(a < 2)", []),
        ("say(INFO, 1)", []),
        ("@dataclass(frozen=True, order=True)\nclass A: ...", ["@dataclass(frozen=True, order=False)\n"]),
        ("zip(a, b, strict=True)", ["pass"]),
        ('"""Text."""', []),
        ("x: Literal[1] = 2", ["x: Literal[1] = 3"]),
    ],
)
def test_each_is_one_change(source: str, expected: list[str]) -> None:
    found = mutants(source)
    assert sorted(m.after for m in found) == sorted(expected)
    for mutant in found:
        assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))


def test_a_statement_that_is_left_out_has_a_name_of_its_own() -> None:
    assert {m.name for m in mutants("f()\ng()\nx = 3\n")} == {"pass for f()", "pass for g()", "x = 4"}


def test_a_seed_draws_the_same_ones() -> None:
    first = draw("runtime/commit", 20, 3)
    assert first == draw("runtime/commit", 20, 3) != draw("runtime/commit", 20, 4)
    for path, mutant in first:
        ast.parse(mutant.apply((ROOT / path).read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", EQUIVALENT)
def test_what_is_listed_as_equivalent_is_a_mutant_of_its_file(path: str) -> None:
    known = {mutant.name for mutant in mutants((ROOT / path).read_text(encoding="utf-8"))}
    assert set(EQUIVALENT[path]) <= known


def test_a_package_has_its_tests() -> None:
    assert judges_of("runtime/state/roll_forward.py")[0] == "tests/runtime/state"
    assert "tests/runtime/log/test_pins.py" in judges_of("runtime/log/files.py")
    assert judges_of("compiler/plan/diff.py")[0] == "tests/compiler/plan"
    assert judges_of("compiler/physical/plan_builder.py") == ["tests/compiler/physical"]
    assert "tests/simulation" in judges_of("runtime/scheduler/policy.py")


def test_the_quick_tests_of_a_function_run_first() -> None:
    calls = Calls(
        {"slow": 2.0, "quick": 1.0, "beside": 0.5},
        {"m.py": {3: {"slow", "quick"}, 9: {"slow", "beside"}}, "other.py": {1: {"far"}}},
    )
    assert calls.of_function("m.py", 3) == ["quick", "slow"]
    assert calls.of_function("m.py", 4) == calls.of_function("new.py", 3) == calls.of_file("new.py") == []
    assert calls.of_file("m.py") == ["beside", "quick", "slow"]
    assert calls.others("other.py") == ["beside", "quick", "slow"]
    assert calls.others("m.py") == []
    assert calls.within(["beside", "quick", "slow"], 2.0) == ["beside", "quick"]
    assert calls.within(["slow", "beside"], 1.0) == ["slow"], "a change is judged by one test at least"


def test_the_tests_of_a_module_run_before_quicker_ones() -> None:
    """What each deployment calls has hundreds of quick tests, and few that look at what it does."""
    tests = ["t/test_small_steps.py::a", "t/test_deploy.py::b", "t/test_deploy.py::c", "t/test_status.py::d"]
    calls = Calls(dict(zip(tests, (1.0, 4.0, 3.0, 2.0), strict=True)), {"runtime/deployment.py": {3: set(tests)}})
    assert calls.of_function("runtime/deployment.py", 3) == [tests[2], tests[1], tests[0], tests[3]]


def test_a_line_belongs_to_the_innermost_function_with_its_decorators() -> None:
    source = "A = 1\n@cache\ndef f(\n    a=2,\n):\n    def g():\n        return 1\n    return [\n        x for x in a\n    ]\n"
    found = [first_line_of_function(source, line) for line in range(1, 11)]
    assert found == [None, None, None, None, None, 2, 6, 2, 2, 2]


TREE = {
    "flowql/__init__.py": "",
    "runtime/__init__.py": "",
    "runtime/m.py": "def half(a):\n    return a // 2\n\n\ndef wait(on):\n    while on:\n        pass\n\n\nclass A:\n    N = 0\n",
    "tests/__init__.py": "",
    "tests/test_m.py": "from flowql.runtime.m import half, wait\n\n\ndef test_wait():\n    wait(on=False)\n\n\ndef test_half():\n    assert half(4) == 2\n",
}
JUDGING = """
import sys
from pathlib import Path
from tests.mutants.judge import judge, record
tree, file = Path(sys.argv[1]), Path(sys.argv[1], "runtime/m.py")
calls = record(tree, ["tests"], 60)
print(calls.of_function("runtime/m.py", 1), sorted(calls.of_file("runtime/m.py")))
source = file.read_text()
for old, new, line, limit_s in [("2", "2", 2, 60), ("2", "3", 2, 60), ("while on", "while not on", 6, 2), ("N = 0", "N = 1 / 0", 11, 60)]:
    file.write_text(source.replace(old, new))
    print(judge(tree, limit_s, calls, "runtime/m.py", line))
"""


def test_a_mutant_is_noticed_by_a_test_that_fails_or_does_not_end(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        os.utime(tmp_path / name, (0, 0))  # bytecode is known by size and second
    (tmp_path / "flowql/runtime").symlink_to(tmp_path / "runtime")  # as in this repository
    ran = subprocess.run(
        [sys.executable, "-c", JUDGING, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    half, wait = "tests/test_m.py::test_half", "tests/test_m.py::test_wait"
    assert ran.stdout.splitlines() == [f"{[half]} {sorted([half, wait])}", "False", "True", "True", "True"]


LEAVING = """
import subprocess, sys
from contextlib import suppress
from pathlib import Path
import psutil
from tests.mutants.judge import in_fork
pid = in_fork(Path(sys.argv[1]), lambda: subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, 60, {})
with suppress(psutil.NoSuchProcess):
    psutil.Process(pid).wait(30)
"""


def test_processes_that_tests_left_end_with_the_mutant(tmp_path: Path) -> None:
    """Brokers would stay, one for each mutant that is noticed by the limit."""
    subprocess.run([sys.executable, "-c", LEAVING, tmp_path], cwd=ROOT, check=True)
