"""A dbt project of a shop: 300 views that stay right and as interactive queries: `python -m tests.dbt`."""
