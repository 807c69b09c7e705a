"""Records in and out of a log by hand: import of files, single records, records as JSON.

Entry points: `flowql.topics.importing.import_file`, `flowql.topics.records`. Knows the plan's sources, not the queries.
"""
