"""Limits of ksqlDB's dialect that standard SQL and streams in Python do not have, where they are seen from the query alone."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.analyze.joins import refuse_self_join
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.properties import Properties
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.dialect.ast import Func, LambdaFn, Lit, Query
from flowql.compiler.dialect.walks import walk

SUPPRESS = "ksql.suppress.enabled"
# Aggregates whose state is a STRUCT, an ARRAY or a MAP. ksqlDB writes it in the value format of the source.
_NESTED_STATE = frozenset(
    [
        "ATTR",
        "AVG",
        "COLLECT_LIST",
        "COLLECT_SET",
        "CORRELATION",
        "COUNT_DISTINCT",
        "EARLIEST_BY_OFFSET",
        "HISTOGRAM",
        "LATEST_BY_OFFSET",
        "STDDEV_SAMP",
        "STDDEV_SAMPLE",
        "TOPK",
        "TOPKDISTINCT",
    ]
)


def refuse_in_ksql(query: Query, catalog: Catalog, properties: Properties, session: Mapping[str, str]) -> None:
    """Raise CompileError for what ksqlDB does not run. session: properties that SET has given."""
    refuse_self_join(query)
    _refuse_nested_state(query, catalog)
    _refuse_format_without_key(query, properties)
    if query.emit == "final" and str(session.get(SUPPRESS, "true")).lower() == "false":
        title = f"EMIT FINAL is disabled: {SUPPRESS} is false"
        raise mistake("FQ2025", title, query.span, "disabled", help=f"SET '{SUPPRESS}' = 'true';")


def _refuse_format_without_key(query: Query, properties: Properties) -> None:
    """PARTITION BY NULL leaves no key column that a key format could write."""
    by = query.partition_by
    alone = len(by) == 1 and isinstance(by[0], Lit) and by[0].kind == "null"
    if not alone or properties.key_format in (None, "NONE"):
        return
    title = f"the key format {properties.key_format} is given for a stream without key columns"
    at = properties.span("KEY_FORMAT")
    raise mistake("FQ2013", title, at, "no key to write", help="leave it out, or write KEY_FORMAT='NONE'")


def _refuse_nested_state(query: Query, catalog: Catalog) -> None:
    """Lines of DELIMITED have no place for nested values. A project with such an aggregate runs on ksqlDB when its source is copied first."""
    source = catalog.sources.get(query.source.name)
    if source is None or source.value_format.name != "DELIMITED":
        return
    nodes = [i.expr for i in query.select] + ([query.having] if query.having is not None else [])
    for call in (c for n in nodes for c in walk(n, LambdaFn)):
        if isinstance(call, Func) and call.name.upper() in _NESTED_STATE:
            title = f"the state of {call.name.upper()} is nested, which the value format DELIMITED of {source.name} cannot write"
            help = (
                f"copy {source.name} first: CREATE STREAM ... WITH (VALUE_FORMAT='JSON') AS SELECT * FROM {source.name}"
            )
            raise mistake("FQ2013", title, call.span, "needs another format", help=help)
