"""Projects over files that Spark reads, lowered over complete history and compared with DuckDB over the same files; `python -m tests.spark_files`."""
