"""Makes the rows and the queries of TPC-H and TPC-DS, in an interpreter whose DuckDB is the one that the extensions were built for.

    python generate.py FOLDER PACKAGES

Writes `tpch` and `tpcds` below FOLDER: a Parquet file for each table, and `queries.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SCALES = {"tpch": ("dbgen", 0.001), "tpcds": ("dsdgen", 0.01)}
SAMPLED = {"catalog_sales": 3, "store_sales": 4, "web_sales": 2, "inventory": 12}  # one row of so many
DAYS = "d_date BETWEEN DATE '1998-01-01' AND DATE '2003-12-31'"
KEPT = {  # the rows of large dimensions that the others speak of
    "date_dim": DAYS,
    "time_dim": "t_time % 60 = 0",
    "customer_demographics": "cd_demo_sk % 10 = 0",
    "household_demographics": "hd_demo_sk % 6 = 0",
    "catalog_page": "cp_catalog_page_sk % 8 = 0",
    "catalog_returns": "(cr_order_number, cr_item_sk) IN (SELECT (cs_order_number, cs_item_sk) FROM catalog_sales)",
    "store_returns": "(sr_ticket_number, sr_item_sk) IN (SELECT (ss_ticket_number, ss_item_sk) FROM store_sales)",
    "web_returns": "(wr_order_number, wr_item_sk) IN (SELECT (ws_order_number, ws_item_sk) FROM web_sales)",
}  # fmt: skip
OF_MINUTES = {
    "store_sales": "ss_sold_time_sk",
    "catalog_sales": "cs_sold_time_sk",
    "web_sales": "ws_sold_time_sk",
    "store_returns": "sr_return_time_sk",
    "web_returns": "wr_returned_time_sk",
    "catalog_returns": "cr_returned_time_sk",
}
ROUNDED = [  # to the rows that stay
    ("store_sales", "ss_hdemo_sk", 6),
    ("customer", "c_current_hdemo_sk", 6),
    ("store_sales", "ss_cdemo_sk", 10),
    ("catalog_sales", "cs_bill_cdemo_sk", 10),
    ("customer", "c_current_cdemo_sk", 10),
    ("web_returns", "wr_refunded_cdemo_sk", 10),
    ("web_returns", "wr_returning_cdemo_sk", 10),
    ("catalog_sales", "cs_catalog_page_sk", 8),
    ("catalog_returns", "cr_catalog_page_sk", 8),
    *((table, column, 60) for table, column in OF_MINUTES.items()),
]


def main(folder: Path, packages: Path) -> None:
    sys.path.insert(0, str(packages))
    import duckdb

    for benchmark, (generator, scale) in SCALES.items():
        found = next(packages.glob(f"duckdb_extension_{benchmark}/extensions/*/*.duckdb_extension"))
        database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        database.execute(f"INSTALL '{found}'; LOAD {benchmark}; CALL {generator}(sf={scale})")
        names = [n for (n,) in database.execute("SHOW TABLES").fetchall()]
        if benchmark == "tpcds":
            _make_small(database)
        to = folder / benchmark
        to.mkdir(parents=True, exist_ok=True)
        for name in names:
            database.execute(f"COPY (SELECT * FROM {name}) TO '{to / name}.parquet'")
        queries = database.execute(f"SELECT query_nr, query FROM {benchmark}_queries() ORDER BY 1").fetchall()
        (to / "queries.json").write_text(json.dumps(dict(queries)))


def _make_small(database: object) -> None:
    run = database.execute  # type: ignore[attr-defined]
    for name, every in SAMPLED.items():
        run(f"DELETE FROM {name} WHERE rowid % {every} <> 0")
    for name in ("catalog_returns", "store_returns", "web_returns"):
        run(f"DELETE FROM {name} WHERE NOT ({KEPT[name]})")
    for name, column, to in ROUNDED:
        run(f"UPDATE {name} SET {column} = {column} - {column} % {to}")
    for name, kept in KEPT.items():
        run(f"DELETE FROM {name} WHERE NOT ({kept})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
