"""The embedded log: a directory of Arrow segments and one commit log, without a broker.

Entry point: `flowql.runtime.log.embedded.log.EmbeddedLog`; the files are described in `runtime/log/FORMAT.md`. Knows no
operator, plan or state store: redo payloads and records are bytes to it.
"""
