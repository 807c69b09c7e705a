"""Pages of codes of interactive queries and subscriptions."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

QUERY_CODES: dict[str, CodePage] = {
    "FQ5101": CodePage(
        "A statement that is not read-only",
        "`flowql query` reads tables and stores and changes nothing: writes, ATTACH, COPY and access to "
        "files are refused. Data comes in through topics.",
        "flowql query 'DELETE FROM ORDERS'",
        "flowql query 'SELECT COUNT(*) FROM ORDERS'",
    ),
    "FQ5102": CodePage(
        "DuckDB cannot answer this statement",
        "The message is DuckDB's. Only one SELECT per call is allowed.",
        "flowql query 'SELECT COUNT( FROM ORDERS'",
        "flowql query 'SELECT COUNT(*) FROM ORDERS'",
    ),
    "FQ5103": CodePage(
        "There is no such table or store",
        "Each stream, table and internal store of the deployed queries is a view. `flowql status` shows the running queries.",
    ),
    "FQ5104": CodePage(
        "No consistent snapshot could be taken", "Commits came faster than a snapshot could be taken. Repeat the query."
    ),
    "FQ5105": CodePage(
        "Nothing has been deployed here yet",
        "The target's directory holds no committed plan, so there is nothing to query.",
        "flowql query 'SELECT 1'",
        "flowql deploy\nflowql query 'SELECT 1'",
    ),
    "FQ5106": CodePage(
        "No new rows will arrive",
        "New rows are computed by a running instance, and none runs. Existing results can still be read.",
        "flowql subscribe ORDERS",
        "flowql deploy\nflowql subscribe ORDERS",
    ),
    "FQ5107": CodePage(
        "This is not a key of the store",
        "`flowql state` takes values of the key columns in their order and of their types; `get` needs all of them. "
        "`flowql shell -c '\\d STORE'` shows the columns.",
        "flowql state get SPENT_PER_HOUR ada 2026",
        "flowql state get SPENT_PER_HOUR ada",
    ),
    "FQ5108": CodePage(
        "An interactive query needs more memory than its limit",
        "All interactive queries share a part of the target's `memory`. Sorts, groups and joins that need more spill to "
        "disk, up to `spill` of `interactive_queries`. Some data can only be held in memory and did not fit: a list or string that grows, "
        "the keys of a table that is read from its topic, rows of other instances. Queries with lambdas, recursion, or lists and strings that "
        "grow are answered by a child process whose memory the operating system limits. If that process ends, the message says why. "
        "Continuous queries and other interactive queries are not affected.",
        "flowql query 'SELECT LIST(ITEM) FROM ORDERS'",
        "flowql query 'SELECT CUSTOMER, LIST(ITEM) FROM ORDERS WHERE ID > 1000000 GROUP BY CUSTOMER'",
    ),
    "FQ5109": CodePage(
        "An interactive query takes too long, or its answer is too long",
        "The rows of an answer, and the time to compute and read it, are limited by `rows` and `time` of `interactive_queries` in the target; "
        "defaults: 100,000,000 and 10 minutes. Rows before the limit have been written. An interactive query has at most 64 joins, where a "
        "sub-query in an expression counts as two, and 1,000 SELECTs: planning more takes minutes, and cannot be interrupted.",
        "flowql query 'SELECT * FROM ORDERS A, ORDERS B'",
        "targets:\n  default: {interactive_queries: {time: 1 hour, rows: 1000000000}}",
    ),
    "FQ5110": CodePage(
        "Other interactive queries hold the memory that this one needs",
        "Rows on their way into and out of an interactive query are in memory, and all that are being answered share the part of the "
        "target's `memory` that is for them. One that finds no room waits for 5 seconds until others end or are read. It "
        "can be repeated; `at_once` of `interactive_queries` allows fewer at the same time, and a larger `memory` makes more room.",
        "flowql query 'SELECT * FROM ORDERS ORDER BY ITEM'   # several at the same time",
        "targets:\n  default: {memory: 2 GB, interactive_queries: {at_once: 4}}",
    ),
    "FQ5111": CodePage(
        "No process can be started for this interactive query",
        "A child process answers queries with lambdas, recursion, or lists and strings that grow. The operating system did not start one, "
        "for example because memory or the number of processes is exhausted. The message has its reason. Other interactive queries are "
        "answered. The query can be repeated, and `flowql doctor` shows the limits of the system.",
        "flowql query 'SELECT LIST(ITEM) FROM ORDERS'   # while no process can be started",
        "flowql query 'SELECT ITEM FROM ORDERS'",
    ),
}
