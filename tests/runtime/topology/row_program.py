"""Inserts pairs of rows into a table of an embedded log, in four threads, until it is killed; prints the name of each pair once it is committed."""

import os
import sys
import threading

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_changes, compile_project
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.topology.query import ensure_sources
from flowql.runtime.topology.row_store import StoresInDatabase
from flowql.runtime.topology.table_writer import TableWriters

folder, tables, table = sys.argv[1:]
log = EmbeddedLog(folder)
plan = compile_project([SourceText("t.sql", table)], dialect="standard").plan
ensure_sources(plan, log.admin())
(source,) = plan.sources
writers = TableWriters(log, "app", "w", StoresInDatabase(open_rocks(tables)))


def insert(thread: int) -> None:
    for i in range(100_000):
        name = f"{os.getpid()}-{thread}-{i}"
        sql = f"INSERT INTO {source.name} VALUES ('{name}', 0), ('{name}', 1)"
        (change,) = compile_changes(SourceText("", sql), plan.sources, dialect="standard")
        writers.change(source, change, 0)
        os.write(1, f"{name}\n".encode())


for n in range(4):
    threading.Thread(target=insert, args=(n,)).start()
