"""Random views of standard SQL over tables that change, as text, against DuckDB."""
