"""Exact execution: the runtime's tasks inside Spark's groups, one group per task partition. Entry: `exact.exact_bounded`.

`program` runs a task over the rows of one group and knows no Spark; `exact` builds the DataFrames.
"""
