CREATE TABLE t (id BIGINT PRIMARY KEY, s VARCHAR, l INTEGER[], n INTEGER, x DOUBLE, d DATE, ts TIMESTAMP, price DECIMAL(10,2));
SELECT n // 2, n / 2, list_contains(l, 1), l[1], strftime(ts, '%Y-%m'), date_diff('day', ts, d::TIMESTAMP), datediff('month', d, DATE '2024-05-01'), x::INT FROM t;
FROM t SELECT id, s WHERE s ILIKE 'a%';
SELECT * EXCLUDE (l) REPLACE (n + 1 AS n) FROM t;
SELECT s, sum(n), count(*) FROM t GROUP BY ALL ORDER BY s;
SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY s ORDER BY x DESC) = 1;
SELECT string_agg(s, ','), median(x), list(id) FROM t;
SELECT date_trunc('month', d), d + INTERVAL 1 MONTH, d - DATE '2024-01-01', year(d), concat(s, n), s || 'x', price / 3, round(price, 1), round(x) FROM t;
SELECT DISTINCT ON (s) s, id FROM t ORDER BY s, id DESC;
PIVOT t ON s USING sum(n);
SUMMARIZE t
