"""The Spark engine: plans run by Spark, either as its own operations or as the runtime's tasks inside Spark's groups.

The one place where pyspark is imported; what needs no Spark (`shapes`, `settings`, `stage.program`) does not import it. Knows
the runtime's operators, tasks and state, but no instance, scheduler or commit.
"""
