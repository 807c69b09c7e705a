"""Mutants are one small change each, and of behaviour."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import draw, judges_of
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


def test_a_seed_draws_the_same_ones() -> None:
    first = draw("runtime/commit", 20, 3)
    assert first == draw("runtime/commit", 20, 3) != draw("runtime/commit", 20, 4)
    for path, mutant in first:
        ast.parse(mutant.apply((ROOT / path).read_text(encoding="utf-8")))


def test_a_package_has_its_tests() -> None:
    assert "tests/runtime/state/test_manager.py" in judges_of("runtime/state/redo.py")
    assert judges_of("compiler/plan/diff.py")[0] == "tests/compiler/plan"
    assert judges_of("compiler/physical/plan_builder.py") == ["tests/compiler/physical"]
    assert "tests/simulation" in judges_of("runtime/scheduler/policy.py")
