"""Statements and clauses of PostgreSQL, Flink SQL, RisingWave and Materialize that have another form here: what to write in their place."""

from __future__ import annotations

from typing import NoReturn

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.reader import Reader

_ONE_BY_ONE = "each statement is a separate transaction"
_ASK = "ask it with  flowql query,  and follow its changes with  flowql subscribe"
_ONE_PROJECT = "a project is one name space; leave it out"
_SETTINGS = "addresses and passwords are those of the target in flowql.yaml"
_SOURCE = "write  CREATE TABLE name (columns) WITH (KAFKA_TOPIC = '...', VALUE_FORMAT = '...')"
_SINK = "write  CREATE VIEW name AS SELECT ...: each view writes its topic"
_VERBS = {
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "END", "ABORT"), _ONE_BY_ONE),
    **dict.fromkeys(("EXECUTE", "CALL", "PREPARE", "DEALLOCATE", "DO"), "write the statements themselves"),
    **dict.fromkeys(("GRANT", "REVOKE", "ANALYZE", "VACUUM", "COMMENT", "USE", "LOCK", "REINDEX", "CLUSTER", "FLUSH", "WAIT", "RECOVER", "CHECKPOINT", "DISCARD", "RESET", "PRAGMA", "ATTACH", "DETACH", "UNLISTEN", "SECURITY"), "leave it out"),
    **dict.fromkeys(("LOAD", "UNLOAD", "IMPORT", "EXPORT"), "write  COPY t FROM 'file.csv'"),
    **dict.fromkeys(("MERGE", "UPSERT", "REPLACE"), "write  INSERT INTO t VALUES ... ON CONFLICT (key) DO UPDATE SET ..."),
    **dict.fromkeys(("DECLARE", "FETCH", "CLOSE", "MOVE", "SUBSCRIBE", "TAIL", "LISTEN", "NOTIFY"), _ASK),
    "TRUNCATE": "write  DELETE FROM t",
    "REFRESH": "a view is up to date by itself",
    **dict.fromkeys(("CANCEL", "KILL", "STOP"), "a query is stopped by  PAUSE name,  and ended by  DROP VIEW name"),
    **dict.fromkeys(("HELP", "QUIT", "EXIT"), "commands of the shell begin with a dot or are in  flowql --help"),
    "RENAME": "create the table or view with its other name",
}  # fmt: skip
_KINDS_OF_VIEWS = ("CONTINUOUS", "DYNAMIC", "LIVE", "STREAMING", "INCREMENTAL", "FORCE")
_OBJECTS = {
    "SINK": _SINK, "SOURCE": _SOURCE, "FUNCTION": "functions are written in Python: docs/guide/python/functions.md",
    "AGGREGATE": "aggregates are written in Python: docs/guide/python/functions.md", **dict.fromkeys(("SCHEMA", "DATABASE", "CATALOG"), _ONE_PROJECT),
    "SEQUENCE": "write  GENERATED ALWAYS AS IDENTITY  behind a column", **dict.fromkeys(("CONNECTION", "CONNECTOR", "SECRET"), _SETTINGS),
    "SUBSCRIPTION": "follow a view with  flowql subscribe", "CLUSTER": "write  WITH (PRIORITY = 'high')  of a view",
    **dict.fromkeys(("USER", "ROLE", "EXTENSION", "DOMAIN", "TABLESPACE"), "leave it out"),
    **dict.fromkeys(("TRIGGER", "PROCEDURE", "RULE"), "write a view that computes it"),
    **dict.fromkeys(("TEMP", "TEMPORARY", "UNLOGGED", "GLOBAL", "LOCAL"), "leave it out"), "RECURSIVE": "",
    "DEFAULT": "leave the index out: views are kept by their key", "PUBLICATION": "follow a view with  flowql subscribe",
    **dict.fromkeys(("POLICY", "OPERATOR", "CAST", "COLLATION", "LANGUAGE", "SERVER", "FOREIGN", "EVENT", "STATISTICS", "ACCESS"), "leave it out"),
    **dict.fromkeys(_KINDS_OF_VIEWS, "write  CREATE VIEW name AS SELECT ...: every view is kept up to date"),
}  # fmt: skip
FOREIGN_COLUMNS = ("METADATA", "AS")  # words that begin `refuse_in_column`
_WITHOUT = ("TEMP", "TEMPORARY", "UNLOGGED")


def remedy(verb: str) -> str:
    """Suggests what to write instead of a statement that only other systems have. Unknown verbs give an empty text."""
    return _VERBS.get(verb, "")


def refuse_verb(cur: Reader, tok: Tok) -> None:
    """Raises UnsupportedError where a statement of another system begins."""
    help = remedy(tok.upper)
    if not help:
        return
    edit = None
    if tok.upper == "TRUNCATE":
        last = cur.after if cur.at_words("TRUNCATE", "TABLE") else tok
        edit = Edit(cur.span_from(tok, last), "DELETE FROM")
    cur.unsupported(tok.upper, help=help, edit=edit)


def refuse_object(cur: Reader, verb: str, start: Tok) -> None:
    """Raises UnsupportedError for a kind of object that is none here. start: the verb."""
    tok = cur.tok
    help = _OBJECTS.get(tok.upper) if tok.kind == "word" else None
    if help is None:
        return
    edit = None
    if tok.upper in _WITHOUT:
        edit = Edit(cur.span_from(tok, tok), "")
    elif tok.upper in _KINDS_OF_VIEWS and cur.after.upper in ("VIEW", "TABLE", "MATERIALIZED"):
        edit = Edit(cur.span_from(tok, cur.peek(2 if cur.after.upper == "MATERIALIZED" else 1)), "VIEW")
    elif verb == "DROP" and tok.upper in ("SOURCE", "SINK"):
        edit = Edit(cur.span_of(tok), "TABLE" if tok.upper == "SOURCE" else "VIEW")
    elif tok.upper == "SOURCE" and _has_columns(cur):
        edit = Edit(cur.span_of(tok), "TABLE")
    elif verb == "CREATE" and tok.upper == "SINK":
        edit = _sink_as_view(cur, start)
    cur.unsupported(f"{verb} {tok.upper}", help=help, edit=edit)


def _has_columns(cur: Reader) -> bool:
    """Whether a list of columns follows the name."""
    at = 4 if cur.after.upper == "IF" else 1
    return cur.peek(at + 1).op == "("


def _sink_as_view(cur: Reader, start: Tok) -> Edit | None:
    """CREATE SINK name FROM relation, or AS query: the text of a view that writes the same rows."""
    at = 4 if cur.after.upper == "IF" else 1
    name, tok = cur.peek(at).text, cur.peek(at + 1)
    if cur.peek(at + 1).upper not in ("FROM", "AS"):
        return None
    last = tok
    while (following := cur.peek(at + 2)).kind != "end" and following.start < cur.final().end:
        if following.kind == "word" and (
            (following.upper == "WITH" and cur.peek(at + 3).op == "(") or following.upper == "FORMAT"
        ):
            break
        last, at = following, at + 1
    text = cur.source.text[tok.end : last.end].strip()
    query = text if tok.upper == "AS" else f"SELECT * FROM {text}"
    return Edit(cur.span_from(start, cur.final()), f"CREATE VIEW {name} AS {query}") if text else None


def refuse_cluster(cur: Reader) -> NoReturn:
    """IN CLUSTER name, of Materialize. Raises UnsupportedError."""
    edit = Edit(cur.span_from(cur.tok, cur.peek(2)), "")
    cur.unsupported("IN CLUSTER", help="write  WITH (PRIORITY = 'high'), or leave it out", edit=edit)


def refuse_behind_query(cur: Reader) -> None:
    """Clauses behind the query of a view. Raises UnsupportedError."""
    if cur.tok.upper == "WITH" and cur.peek(2 if cur.after.upper == "NO" else 1).upper == "DATA":
        help = "leave it out: a view is computed when it is deployed"
        cur.unsupported("WITH [NO] DATA", help=help, edit=Edit(cur.rest(), ""))
    if cur.back(1).upper == "EMIT" and cur.tok.kind != "end":  # which was read as an alias
        help = "a view shows each change; write  EMIT ON WINDOW CLOSE  to show only closed windows, or leave it out"
        edit = Edit(cur.span_from(cur.back(1), cur.final()), "")
        cur.unsupported(f"EMIT {cur.tok.upper}", help=help, edit=edit)


def refuse_include(cur: Reader) -> NoReturn:
    """INCLUDE KEY AS name, of RisingWave, in front of WITH. Raises UnsupportedError."""
    at = 0
    while (
        cur.peek(at + 1).kind != "end" and cur.peek(at + 1).upper != "WITH" and cur.peek(at).start < cur.final().start
    ):
        at += 1
    help = "the columns of the PRIMARY KEY are the record's key, ROWTIME is its time, and HEADERS of a stream its headers; leave it out"
    cur.unsupported("INCLUDE", help=help, edit=Edit(cur.span_from(cur.tok, cur.peek(at)), ""))


def refuse_in_column(cur: Reader) -> None:
    """Columns of Flink SQL that are not of the record: METADATA, and AS PROCTIME(). Raises UnsupportedError."""
    if cur.tok.upper == "METADATA":
        cur.unsupported(
            "a METADATA column",
            help="the time of a record is  ROWTIME, its headers are a column  h ... HEADERS  of a stream",
        )
    if cur.tok.upper == "AS" and cur.after.upper == "PROCTIME" and cur.peek(2).op == "(":
        help = "write  FOR SYSTEM_TIME AS OF PROCTIME()  in a join; leave the column out"
        edit = Edit(cur.span_from(cur.back(2), cur.peek(3)), "") if cur.back(2).text == "," else None
        cur.unsupported("a column of PROCTIME()", help=help, edit=edit)


def refuse_with_refresh(cur: Reader) -> NoReturn:
    """WITH (REFRESH ...) or WITH (RETAIN HISTORY ...), of Materialize. Raises UnsupportedError."""
    if cur.peek(2).upper == "RETAIN":
        cur.unsupported("RETAIN HISTORY of a view", help="a view shows its newest rows; leave it out")
    cur.unsupported("REFRESH of a view", help="a view is up to date by itself; leave it out")
