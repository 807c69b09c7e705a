"""Simulated worlds whose queries use what a module of a project declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from flowql.compiler.driver import compile_project
from flowql.compiler.functions.registry import Registered
from flowql.compiler.functions.user import MARK, UserDefined, entry_of
from tests.registries import forget_projects
from tests.sim import project


def _same(entry: Registered) -> Registered:
    return entry


PLANS = (project.plan, project.later_plan, project.changed_plan)


@contextmanager
def declared(
    patch: pytest.MonkeyPatch, marked: Any, edits: Mapping[str, str], of: Callable[[Registered], Registered] = _same
) -> Iterator[None]:
    """Within, the worlds' plans are edited, and know what is marked. of: what is registered in place of an entry."""
    user = getattr(marked, MARK)
    assert isinstance(user, UserDefined)
    functions = {part.name: of(entry_of(part, "mine", "1")) for part in (user, *getattr(user, "parts", ()))}
    patch.setattr(project, "compile_project", partial(compile_project, functions=functions))
    for name in ("SQL", "LATER"):
        for old, new in edits.items():
            assert old in getattr(project, name)
            patch.setattr(project, name, getattr(project, name).replace(old, new))
    for made in PLANS:
        made.cache_clear()
    yield
    for made in PLANS:
        made.cache_clear()
    forget_projects()
