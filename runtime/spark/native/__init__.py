"""Queries as Spark's own operators on typed columns, where the meaning agrees: types, expressions, aggregates and the ends of a query, for `frames` and `over_topics`.

Knows the logical plan, Spark, and the runtime's kernels that decode, encode and give functions their meaning; nothing of tasks
and stores. Whether a query may be native is for `flowql.runtime.spark.choose` to say.

Topics are read exactly unless an aggregation follows: Spark folds before its shuffle, the runtime's tasks behind theirs. Ours beside
a job by hand is measured by `python -m benchmarks.spark_overhead`.
"""
