"""A plan over DataFrames that the caller gives, as DataFrames: no log, no files, no state; the entry point is `lower.lower`.

Batch frames with *complete history*: all rows are as if in the order of their times, and none is late. Everything is Spark's own
operators and expressions whose meaning no setting of the session changes; there is no Python in what Spark runs, and no call of the
JVM, so that it goes through Spark Connect. What has no such form is refused by name (`SparkUnsupported`).
"""
