"""Views beside PostgreSQL's recorded answers, where DuckDB answers otherwise or not at all.

`python -m tests.standard_views.recorded postgres://postgres@127.0.0.1:5432/postgres` asks PostgreSQL 15 and writes `recorded.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
TABLES = (
    "CREATE TABLE t (k INT PRIMARY KEY, a INT, s TEXT, n NUMERIC(8, 2), j JSONB)",
    "CREATE TABLE u (k INT PRIMARY KEY, a INT, s TEXT)",
)
VIEWS = {
    "beyond_bigint": "SELECT k, 9223372036854775808 + k AS x, -9223372036854775809 AS y, k < 99999999999999999999 AS z FROM t",
    "without_items": "SELECT k FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.a)",
    "without_items_or": "SELECT k FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.a = t.a LIMIT 1) OR k = 1",
    "whole_row": "SELECT k, to_jsonb(t) AS j FROM t",
    "whole_row_of_a_query": "WITH c AS (SELECT k, a + 1 AS b FROM t) SELECT k, to_jsonb(c) AS j FROM c",
    "missing_row": "SELECT t.k, to_jsonb(u) AS j, u IS NULL AS n, u IS NOT NULL AS nn FROM t LEFT JOIN u ON t.a = u.k",
    "rows_without_values": "SELECT t.k, to_jsonb(q) AS j FROM t LEFT JOIN (SELECT k, NULL::INT AS x FROM u) AS q ON t.a = q.k",
    "rows_of_groups": "SELECT a, jsonb_agg(u ORDER BY k) AS j, COUNT(u) AS n FROM u GROUP BY a",
    "rows_of_a_sub_query": "SELECT k, (SELECT jsonb_agg(q ORDER BY q.k) FROM (SELECT u.k, u.s FROM u WHERE u.a = t.a) AS q) AS j FROM t",
    "one_row_of_a_sub_query": "SELECT k, (SELECT to_jsonb(q) FROM (SELECT u.s, u.a FROM u WHERE u.k = t.a) AS q) AS j FROM t",
    "digits": "SELECT k, j ->> 'p' AS p, j -> 'q' ->> 0 AS q, j #>> '{q,1}' AS r, (j -> 'p')::text AS s, to_jsonb(n) AS n, j::text AS j FROM t",
    "made_digits": "SELECT k, jsonb_build_array(n, k * 2.50, 1.0::float8, 1e20::float8, -0.0, '0.00'::jsonb)::text AS j FROM t",
    "equal": "SELECT x.k, y.k AS l, x.j -> 'p' = y.j -> 'p' AS c, (x.j -> 'p') IN ('1.100', '7') AS i FROM t AS x, t AS y WHERE x.j -> 'p' = y.j -> 'p'",
    "joined_by_values": "SELECT x.k, y.k AS l FROM (SELECT k, j -> 'p' AS p FROM t) AS x JOIN (SELECT k, j -> 'p' AS p FROM t) AS y USING (p)",
    "counted_values": "SELECT COUNT(DISTINCT j -> 'p') AS n, COUNT(j) AS m FROM t",
    "grouped_values": "SELECT COUNT(*) AS n, MIN(k) AS k FROM t GROUP BY j -> 'p'",
    "distinct_values": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT j -> 'p' AS p FROM t UNION SELECT '1.1000'::jsonb) AS q",
    "other_values": "SELECT COUNT(*) AS n FROM (SELECT j -> 'p' AS p FROM t EXCEPT SELECT '1.1000'::jsonb) AS q",
    "numbered_values": "SELECT k, ROW_NUMBER() OVER (PARTITION BY j -> 'p' ORDER BY k) AS n FROM t",
    "doubles_as_numbers": "SELECT k, ROUND((n * 0.15::float8)::numeric, 2) AS x, (4.1::float8 * a * 0.15::float8)::numeric(8, 2) AS y FROM t",
    "deviations": "SELECT ROUND(STDDEV(a), 6) AS a, ROUND(STDDEV_POP(n), 6) AS n, ROUND(VARIANCE(k), 6) AS k, ROUND(VAR_POP(n), 6) AS m FROM t",
    "deviation_of_sums": "SELECT ROUND(STDDEV(x), 4) AS s FROM (SELECT SUM(n) AS x FROM t GROUP BY k) AS q",
    "split_in_from": "SELECT k, w FROM u CROSS JOIN LATERAL regexp_split_to_table(s || ' b  c', E'\\\\s+') AS w",
    "split_in_select": "SELECT k, string_to_table(s || ',z', ',') AS w, regexp_split_to_table(s || '-y', '-') AS v FROM t",
    "several_percentiles": "SELECT k % 2 AS g, percentile_cont(ARRAY[0, 0.5]) WITHIN GROUP (ORDER BY a) AS p, percentile_disc(ARRAY[0.5, 1]) WITHIN GROUP (ORDER BY n) FILTER (WHERE k < 3) FROM t GROUP BY k % 2",
    "merged_column_in_rollup": "SELECT a, u.a AS b, GROUPING(u.a) AS g, COUNT(*) AS n FROM u JOIN t USING (a) GROUP BY ROLLUP (a, u.a)",
    "merged_column_in_rollup_of_full_join": "SELECT a, u.a AS b, GROUPING(u.a) AS g, COUNT(*) AS n FROM u FULL JOIN t USING (a) GROUP BY ROLLUP (a, u.a)",
    "intervals_of_texts": "SELECT k, (a || ' month')::interval AS i, DATE '2024-01-31' + (k || ' days 01:30')::interval AS d, '-1.5 months'::interval AS m, '1.26 decades'::interval AS y FROM t",
    "quoted_in_values": "SELECT k, jsonb_typeof(v) AS j, d + k AS d, i, x[1] AS x FROM t, (VALUES (NULL::jsonb, DATE '2024-01-01', INTERVAL '1 day', ARRAY[1]), ('[1]', '2024-01-02', '2 days', '{2,3}')) AS w(v, d, i, x)",
    "quoted_in_union": "SELECT k, DATE '2024-01-01' AS d, j FROM t UNION ALL SELECT k, '2024-02-29', '{}' FROM u UNION ALL SELECT '7', NULL, NULL FROM u",
    "quoted_beside_arrays": "SELECT k, ARRAY[a] = '{1}' AS e, COALESCE(NULLIF(ARRAY[a], '{2}'), '{7}') AS c, CASE WHEN k = 1 THEN '1 day' ELSE INTERVAL '2 days' END AS i FROM t",
    "pairs_that_are_not_finite": "SELECT g, REGR_AVGX(y, x) AS x, REGR_AVGY(y, x) AS y, REGR_SXX(y, x) AS xx, REGR_SYY(y, x) AS yy, REGR_R2(y, x) AS r, CORR(y, x) AS c, COVAR_POP(y, x) AS p FROM (SELECT g, a::float8 AS y, CASE WHEN k = 1 THEN 'Infinity' ELSE k::float8 END AS x FROM t CROSS JOIN (VALUES (1), (2)) AS g(g) UNION ALL SELECT g, '-Infinity', g + 1 FROM (VALUES (2), (3)) AS g(g) UNION ALL SELECT 4, NULLIF(k, 1), 'NaN' FROM t) AS p GROUP BY g",
    "fields_as_rows": "SELECT k, jsonb_each(j)::text AS e, jsonb_each_text(j - 'q')::text AS t, unnest(ARRAY[k]) AS u FROM t",
    "null_if_equal": "SELECT k, NULLIF(j -> 'p', '1.100') AS v, j -> 'p' = ANY(ARRAY['1.100'::jsonb]) AS a FROM t",
}
CHANGES = (
    """INSERT INTO t VALUES (1, 1, 'x', 1.50, '{"p": 1.10, "q": [1e2, 1.50e1]}'), (2, 2, NULL, 2, '{"p": 1.1}'), (3, 9, 'it''s', NULL, NULL)""",
    "INSERT INTO u VALUES (1, 1, 'a'), (2, 1, NULL), (3, NULL, 'c')",
    "UPDATE u SET a = 2 WHERE k = 1",
    "UPDATE t SET a = 3, s = 'y' WHERE k = 2",
    "DELETE FROM u WHERE k IN (1, 3)",
    "DELETE FROM t WHERE k = 3",
)


def answers() -> dict[str, list[list[str]]]:
    """The rows of each view after each change, sorted, as PostgreSQL writes them."""
    found: dict[str, list[list[str]]] = json.loads(FILE.read_text())
    return found


def main(url: str) -> None:
    """Asks PostgreSQL, in a transaction that is rolled back."""
    script = ["BEGIN", *TABLES, *(f"CREATE VIEW {n} AS {q}" for n, q in VIEWS.items())]
    for change in CHANGES:
        script.append(change)
        script += [s for n in VIEWS for s in (f"SELECT '--{n}'", f"SELECT * FROM {n}")]
    command = ["psql", url, "-X", "-q", "-A", "-t", "-F", " ", "-P", "null=NULL", "-v", "ON_ERROR_STOP=1"]
    text = ";\n".join([*script, "ROLLBACK;"])
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made: dict[str, list[list[str]]] = {n: [] for n in VIEWS}
    for part in done.stdout.split("--")[1:]:
        name, *rows = part.strip().splitlines()
        made[name].append(sorted(rows))
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
