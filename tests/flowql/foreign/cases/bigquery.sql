CREATE TABLE shop.orders (id INT64 NOT NULL, customer STRING, amount FLOAT64, n NUMERIC, qty INT64, tags ARRAY<STRING>, st STRUCT<a INT64, b STRING>, ts TIMESTAMP, d DATE, j JSON) PARTITION BY DATE(ts);
SELECT SAFE_DIVIDE(amount, qty), DATE_DIFF(d, DATE '2024-01-01', DAY), TIMESTAMP_TRUNC(ts, HOUR), FORMAT_TIMESTAMP('%Y-%m', ts), IF(qty > 1, 'a', 'b'), SAFE_CAST(customer AS INT64), "str" FROM `proj.shop.orders`;
SELECT id, tag FROM shop.orders, UNNEST(tags) AS tag;
SELECT * EXCEPT (j, st) FROM shop.orders;
SELECT customer, COUNTIF(qty > 1) AS n, AVG(qty) AS a, qty_ FROM (SELECT customer, qty, 1 AS qty_ FROM shop.orders) GROUP BY customer, qty_;
CREATE MATERIALIZED VIEW shop.v AS SELECT customer, APPROX_COUNT_DISTINCT(qty) AS q, ANY_VALUE(id) AS i FROM shop.orders GROUP BY customer;
SELECT qty / 2, 1.5 + qty, DATE_TRUNC(d, WEEK), DATE_TRUNC(d, ISOWEEK), DATE_ADD(d, INTERVAL 3 DAY), TIMESTAMP_DIFF(ts, TIMESTAMP '2024-01-01 00:00:00', MINUTE), EXTRACT(DAYOFWEEK FROM d), EXTRACT(YEAR FROM ts) FROM shop.orders;
SELECT st.a, JSON_VALUE(j, '$.x.y'), tags[OFFSET(0)], tags[ORDINAL(1)], STRING_AGG(customer, '-' ORDER BY id) FROM shop.orders GROUP BY 1,2,3,4;
SELECT TRIM(customer), CONCAT(customer, '-', CAST(qty AS STRING)), SUBSTR(customer, 2), LOWER(customer) FROM shop.orders WHERE customer LIKE 'a%' AND d >= CURRENT_DATE() - 7;
SELECT id, RANK() OVER (PARTITION BY customer ORDER BY amount DESC) AS r FROM shop.orders QUALIFY r = 1;
SELECT GENERATE_UUID(), ARRAY_LENGTH(tags), ARRAY_AGG(id) FROM shop.orders GROUP BY tags
