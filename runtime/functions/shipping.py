"""Modules with user-defined functions as data, for processes that do not have the project's files: the Python workers of Spark.

The driver ships the texts of the modules that a query calls, as it has loaded them; a worker makes the same entries of them, under the same
names. Calls are made as on the runtime: in a process of the worker's own, or inline.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from flowql.compiler.functions.registry import (
    AggregateFunction,
    Function,
    Registered,
    register_of_project,
    registered,
    registered_of_project,
)
from flowql.compiler.functions.user import UserDefined, UserFunction, entry_of, found_in_plan, is_users, marked
from flowql.compiler.functions.user_aggregates import UserAggregate
from flowql.compiler.functions.user_vectorized import UserVectorFunction
from flowql.runtime.functions.async_workers import ProcessCalls
from flowql.runtime.functions.calls import inline, isolated, isolated_aggregate
from flowql.runtime.functions.texts import importing
from flowql.runtime.functions.workers import Code, Source

_codes: dict[str, Code] = {}  # by the names of functions in plans
_shipped: dict[
    tuple[str, str], list[str]
] = {}  # module and version -> functions that `register_shipped` has made of it
_registering = threading.Lock()  # a worker may run several tasks of Spark


def with_calls(entry: Registered, user: UserDefined, code: Code) -> Registered:
    """The entry, with calls made where `user` says. `shipped` knows its code from then on."""
    _codes[entry.name] = code
    if isinstance(user, UserAggregate):
        assert isinstance(entry, AggregateFunction)
        return entry if user.limits.inline else isolated_aggregate(entry, user, code)
    if not isinstance(entry, Function):
        return entry
    if entry.asynchronous is not None:
        if user.limits.inline:
            return entry
        home = ProcessCalls(user.name, entry.asynchronous.options.timeout_s, code)
        return replace(entry, asynchronous=replace(entry.asynchronous, home=home))
    if user.limits.inline:
        return inline(entry)
    assert isinstance(user, UserFunction | UserVectorFunction)
    return isolated(entry, user, code)


def shipped(names: Iterable[str]) -> list[Any]:
    """Plain data (for JSON) of the modules that these functions are in. names: as in plans; built-in ones are left out.

    So is a version that is found nowhere: the queries that call it fail where they run, as on the runtime.
    """
    found: dict[tuple[str, str], Code] = {}
    for name in sorted(filter(is_users, names)):
        found_in_plan(name, registered, lambda _: None)  # finders load it
        if (code := _codes.get(name)) is not None:
            found[code.module, code.version] = code
    return [_data(code) for code in found.values()]


def register_shipped(data: Iterable[Any]) -> None:
    """Makes functions of shipped modules known in this process."""
    for code in map(_code, data):
        with _registering:
            names = _shipped.get((code.module, code.version))
            if names is not None and all(map(registered_of_project, names)):
                continue
            with importing(code) as module:
                entries = [(entry_of(user, code.module, code.version), user) for user in marked(module)]
            for entry, user in entries:
                if not registered_of_project(entry.name):  # on the driver it is
                    register_of_project(with_calls(entry, user, code))
            _shipped[code.module, code.version] = [entry.name for entry, _ in entries]


def _data(code: Code) -> list[Any]:
    sources = [[s.name, s.path, base64.b64encode(s.text).decode(), s.is_package] for s in code.sources]
    return [code.module, code.version, code.memory_bytes, sources]


def _code(data: Any) -> Code:
    module, version, memory_bytes, sources = data
    texts = tuple(Source(name, path, base64.b64decode(text), package) for name, path, text, package in sources)
    return Code(module, texts, memory_bytes, version=version)
