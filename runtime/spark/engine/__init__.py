"""A deployed project on Spark: its plan and checkpoints on disk, one stream per query, batch runs, restarts, status, state.

Entry point: `instance.SparkInstance`. What one query does inside Spark is the affair of `flowql.runtime.spark.stage` and `native`.
"""
