"""FlowQL: streaming SQL with priorities.

    import flowql

    shop = flowql.connect("shop")                      # the project in a folder; its instance, if one runs
    shop.deploy()
    shop.produce("ORDERS", [{"CUSTOMER": "ada", "AMOUNT": 12}])
    shop.sql("SELECT * FROM SPENT_PER_HOUR").df()      # also .arrow(), .pl(), .rel(), or iterate it
    for change in shop.subscribe("SPENT_PER_HOUR"): ...

`connect("http://shop.example.com:8321", token=...)` does the same with an instance on another machine. `Instance` runs a project inside your
program; `flowql.spark` has a project's queries as Spark DataFrames; `%load_ext flowql` gives notebooks the magic `%%flowql`.
Names are loaded when they are used: importing the package itself loads nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowql.api.changes import Subscription as Subscription
    from flowql.api.connection import Connection as Connection
    from flowql.api.connection import connect as connect
    from flowql.api.instance import Instance as Instance
    from flowql.api.notebook import load_ipython_extension as load_ipython_extension
    from flowql.api.result import Result as Result
    from flowql.compiler.functions.asynchronous import RetryAfter as RetryAfter
    from flowql.compiler.functions.asynchronous import exponential as exponential
    from flowql.compiler.functions.asynchronous import fixed as fixed
    from flowql.compiler.functions.user import udf as udf
    from flowql.compiler.functions.user import udtf as udtf
    from flowql.compiler.functions.user_aggregates import udaf as udaf
    from flowql.compiler.processors.processor import AsyncProcessor as AsyncProcessor
    from flowql.compiler.processors.processor import BatchProcessor as BatchProcessor
    from flowql.compiler.processors.processor import Processor as Processor
    from flowql.compiler.processors.processor import ProcessorContext as ProcessorContext
    from flowql.compiler.processors.stores import KeyValueStore as KeyValueStore
    from flowql.compiler.processors.stores import SessionStore as SessionStore
    from flowql.compiler.processors.stores import WindowStore as WindowStore
    from flowql.compiler.processors.topology import Topology as Topology
    from flowql.compiler.streams.builder import StreamsBuilder as StreamsBuilder
    from flowql.compiler.streams.expression import Expression as Expression
    from flowql.compiler.streams.expression import col as col
    from flowql.compiler.streams.expression import fn as fn
    from flowql.compiler.streams.expression import lit as lit
    from flowql.compiler.streams.expression import when as when
    from flowql.compiler.streams.graph import HoppingWindow as HoppingWindow
    from flowql.compiler.streams.graph import SessionWindow as SessionWindow
    from flowql.compiler.streams.graph import TumblingWindow as TumblingWindow
    from flowql.compiler.streams.stream import Grouped as Grouped
    from flowql.compiler.streams.stream import Stream as Stream
    from flowql.compiler.streams.stream import Table as Table
    from flowql.compiler.streams.stream import WindowedStream as WindowedStream
    from flowql.errors import CommandError as CommandError
    from flowql.errors import CompileError as CompileError
    from flowql.errors import ProjectError as ProjectError
    from flowql.errors import RuntimeFailure as RuntimeFailure
    from flowql.query.change import Change as Change
    from flowql.query.change import Rebuilt as Rebuilt

if os.path.isfile(f"{__path__[0]}/compiler"):
    raise ImportError(
        "this clone has files in place of the links flowql/compiler and flowql/runtime, because git's core.symlinks is off: "
        "type `make setup`, which makes the links"
    )
_HOMES = {
    "AsyncProcessor": "flowql.compiler.processors.processor",
    "BatchProcessor": "flowql.compiler.processors.processor",
    "Change": "flowql.query.change",
    "CommandError": "flowql.errors",
    "CompileError": "flowql.errors",
    "Connection": "flowql.api.connection",
    "Expression": "flowql.compiler.streams.expression",
    "Grouped": "flowql.compiler.streams.stream",
    "HoppingWindow": "flowql.compiler.streams.graph",
    "Instance": "flowql.api.instance",
    "KeyValueStore": "flowql.compiler.processors.stores",
    "Processor": "flowql.compiler.processors.processor",
    "ProcessorContext": "flowql.compiler.processors.processor",
    "ProjectError": "flowql.errors",
    "Rebuilt": "flowql.query.change",
    "Result": "flowql.api.result",
    "RetryAfter": "flowql.compiler.functions.asynchronous",
    "RuntimeFailure": "flowql.errors",
    "SessionStore": "flowql.compiler.processors.stores",
    "SessionWindow": "flowql.compiler.streams.graph",
    "Stream": "flowql.compiler.streams.stream",
    "StreamsBuilder": "flowql.compiler.streams.builder",
    "Subscription": "flowql.api.changes",
    "Table": "flowql.compiler.streams.stream",
    "Topology": "flowql.compiler.processors.topology",
    "TumblingWindow": "flowql.compiler.streams.graph",
    "WindowStore": "flowql.compiler.processors.stores",
    "WindowedStream": "flowql.compiler.streams.stream",
    "col": "flowql.compiler.streams.expression",
    "connect": "flowql.api.connection",
    "exponential": "flowql.compiler.functions.asynchronous",
    "fixed": "flowql.compiler.functions.asynchronous",
    "fn": "flowql.compiler.streams.expression",
    "lit": "flowql.compiler.streams.expression",
    "load_ipython_extension": "flowql.api.notebook",
    "udaf": "flowql.compiler.functions.user_aggregates",
    "udf": "flowql.compiler.functions.user",
    "udtf": "flowql.compiler.functions.user",
    "when": "flowql.compiler.streams.expression",
}
__all__ = sorted(n for n in _HOMES if n != "load_ipython_extension")


def __getattr__(name: str) -> Any:
    if name == "spark":
        return import_module("flowql.spark")
    if name not in _HOMES:
        raise AttributeError(f"module 'flowql' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "spark"]
