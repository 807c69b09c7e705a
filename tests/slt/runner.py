"""Running one case and judging it, as the corpus says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.errors import CommandError
from flowql.runtime.errors import StatementFailed
from tests.conformance.runner import TimedOut, time_limit
from tests.slt.rows import difference, inserts, rendered
from tests.slt.session import Shape, SqlSession

STEP_S = 10  # for each statement and interactive query
Case = dict[str, Any]
# Why a step failed. REFUSED: by a code that the user sees. INTERNAL: any other exception. ACCEPTED: an error was expected.
REFUSED, INTERNAL, WRONG, ACCEPTED, SLOW = "refused", "internal error", "wrong rows", "accepted", "too slow"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed step: its number, class (see above), and reason."""

    step: int
    kind: str
    reason: str


@dataclass(slots=True)
class Result:
    """A judged case. judged: its statements and interactive queries, failures: of them, in order. errors, queries: (passed, all) of such steps.

    unrefused: steps that expect an error and did not get one of the user's.
    """

    id: str
    tier: str
    failures: list[Failure] = field(default_factory=list)
    judged: int = 0
    unrefused: list[Failure] = field(default_factory=list)
    errors: list[int] = field(default_factory=lambda: [0, 0])
    queries: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def passed(self) -> bool:
        """Error steps are left out, except where a case has nothing else."""
        return not self.failures and (self.judged > 0 or self.errors[0] == self.errors[1])


class _Problem(Exception):
    """Why a step failed. not_built: it is refused because it is not supported yet."""

    def __init__(self, kind: str, reason: str, *, not_built: bool = False) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.not_built = kind, reason, not_built


def run_case(case: Case, data: Path, shape: Shape | None = None, *, step_s: int = STEP_S) -> Result:
    """Run and judge a case in a fresh world. step_s: how long a statement or an interactive query may take."""
    result = Result(case["id"], case["tier"])
    world = SqlSession(shape or Shape())
    try:
        for n, step in enumerate(case["steps"]):
            _judge(world, step, n, data, result, step_s)
    finally:
        world.close()
    return result


def _judge(world: SqlSession, step: dict[str, Any], n: int, data: Path, result: Result, step_s: int) -> None:
    """A failed statement fails the case; the rest is run to report more."""
    expects_error = step.get("expect") == "error"
    problem = _attempt(lambda: _run(world, step, data), step_s)
    if step.get("cleanup") or step.get("optional"):
        return
    if expects_error:
        _judge_error(problem or _Problem(ACCEPTED, "the statement was accepted"), n, result)
        return
    result.judged += step["kind"] in ("statement", "query")
    if step["kind"] == "query":
        result.queries[1] += 1
        result.queries[0] += problem is None
    if problem is not None:
        result.failures.append(Failure(n, problem.kind, problem.reason))


def _judge_error(problem: _Problem, n: int, result: Result) -> None:
    """Only the user's mistake counts: not what is not supported yet, nor what fails because a statement before it has."""
    result.errors[1] += 1
    if problem.kind != REFUSED or problem.not_built:
        result.unrefused.append(Failure(n, problem.kind, problem.reason))
    elif result.failures:
        result.unrefused.append(Failure(n, problem.kind, f"after a failed statement: {problem.reason}"))
    else:
        result.errors[0] += 1


def _attempt(run: Callable[[], None], step_s: int) -> _Problem | None:
    try:
        with time_limit(step_s):
            run()
    except TimedOut:
        return _Problem(SLOW, f"took more than {step_s} s")
    except _Problem as problem:
        return problem
    except CompileError as error:
        (first, *_) = error.diagnostics
        not_built = any(d.unsupported for d in error.diagnostics)
        return _Problem(REFUSED, f"{first.code}: {first.title}", not_built=not_built)
    except CommandError as error:
        return _Problem(REFUSED, f"{error.code}: {error.title}")
    except StatementFailed as error:
        return _Problem(REFUSED, f"{error.code}: {error}")
    except Exception as error:  # a crash is a failed step, with its reason
        return _Problem(INTERNAL, f"{type(error).__name__}: {error}")
    return None


def _run(world: SqlSession, step: dict[str, Any], data: Path) -> None:
    match step["kind"]:
        case "statement":
            world.execute(step["sql"])
        case "query":
            _compare(world, step)
        case "flush":
            world.settle()
        case "load":
            for sql in _loads(step, data):
                world.execute(sql)
        case "sleep":
            world.sleep(step["ms"])
        case "restart":
            return  # may be skipped
        case other:
            raise AssertionError(f"unknown kind of step {other}")


def _compare(world: SqlSession, step: dict[str, Any]) -> None:
    """Everything has been processed when an interactive query is asked: an answer that is wrong stays wrong, however long one waits."""
    answer = world.ask(step["sql"])
    found = difference(step.get("rows") or [], rendered(answer), ordered=step.get("sort") == "nosort")
    if found:
        raise _Problem(WRONG, found)


def _loads(step: dict[str, Any], data: Path) -> list[str]:
    document = json.loads((data / f"{step['data']}.json").read_text(), parse_float=Decimal)
    return inserts(step["table"], document["columns"], document["rows"])
