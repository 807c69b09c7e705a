-- In the style of Flink SQL's documentation: windows, deduplication, top-N, OVER, joins, set operations and its functions, over a shop.

--- tables
CREATE TABLE Orders (
    order_id    STRING,
    product     STRING,
    amount      INT,
    price       DECIMAL(10, 2),
    `user`      BIGINT,
    order_time  TIMESTAMP(3),
    PRIMARY KEY (order_id) NOT ENFORCED
);
/* duckdb CREATE TABLE Orders (order_id STRING, product STRING, amount INT, price DECIMAL(10, 2), "user" BIGINT, order_time TIMESTAMP); */
CREATE TABLE Customers (
    id       BIGINT PRIMARY KEY NOT ENFORCED,
    name     STRING,
    country  STRING,
    since    DATE,
    score    DOUBLE
);
/* duckdb CREATE TABLE Customers (id BIGINT PRIMARY KEY, name STRING, country STRING, since DATE, score DOUBLE); */
CREATE TABLE Shipments (ship_id INT, order_id STRING, ship_time TIMESTAMP(3), weight FLOAT);
/* duckdb CREATE TABLE Shipments (ship_id INT, order_id STRING, ship_time TIMESTAMP, weight DOUBLE); */
INSERT INTO Orders VALUES
    ('o1', 'tea', 3, 4.50, 1, TIMESTAMP '2024-03-01 10:00:05'),
    ('o2', 'cup', 1, 7.00, 2, TIMESTAMP '2024-03-01 10:02:00'),
    ('o3', 'tea', 10, 4.25, 1, TIMESTAMP '2024-03-01 10:07:30'),
    ('o4', 'pot', 1, 25.00, NULL, TIMESTAMP '2024-03-01 10:11:00'),
    ('o5', 'cup', 4, 6.50, 3, TIMESTAMP '2024-03-01 10:11:59.999');
INSERT INTO Customers VALUES (1, 'Ida', 'NO', DATE '2020-05-01', 1.5), (2, 'Jon', 'DK', DATE '2023-12-31', 0.25), (4, 'Kim', NULL, NULL, NULL);
INSERT INTO Shipments VALUES (1, 'o1', TIMESTAMP '2024-03-01 12:00:00', 0.5), (2, 'o3', TIMESTAMP '2024-03-01 15:30:00', 2.0), (3, 'o9', TIMESTAMP '2024-03-02 00:00:00', 1.0);

--- changes
INSERT INTO Orders VALUES ('o6', 'tea', 2, 4.75, 2, TIMESTAMP '2024-03-01 10:17:00'), ('o7', 'mug', 6, 3.00, 4, TIMESTAMP '2024-03-01 10:19:59');
UPDATE Orders SET amount = 5 WHERE order_id = 'o2';
DELETE FROM Orders WHERE order_id = 'o3';
INSERT INTO Customers VALUES (3, 'Lea', 'NO', DATE '2024-02-29', 9.0);
UPDATE Customers SET country = 'SE' WHERE id = 1;
INSERT INTO Shipments VALUES (4, 'o5', TIMESTAMP '2024-03-01 11:00:00', 4.5);

--- SELECT with names in back-ticks
CREATE VIEW v AS SELECT `order_id`, price + 1 AS `next price`, `user` FROM Orders;

--- WHERE with IN, BETWEEN and LIKE
CREATE VIEW v AS SELECT order_id FROM Orders WHERE product IN ('tea', 'pot') AND price BETWEEN 4 AND 30 AND order_id LIKE 'o%';

--- SELECT DISTINCT
CREATE VIEW v AS SELECT DISTINCT product, `user` FROM Orders;

--- WITH
CREATE VIEW v AS
WITH orders_with_total AS (SELECT order_id, price * amount AS total FROM Orders)
SELECT order_id, SUM(total) AS t FROM orders_with_total GROUP BY order_id;

--- a tumbling window as a table function
CREATE VIEW v AS
SELECT window_start, window_end, SUM(price) AS total_price
  FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 10 MINUTE, order_time) AS window_start, time_bucket(INTERVAL 10 MINUTE, order_time) + INTERVAL 10 MINUTE AS window_end, SUM(price) AS total_price FROM Orders GROUP BY ALL; */

--- a tumbling window with named parameters
CREATE VIEW v AS
SELECT window_start, product, COUNT(*) AS n
  FROM TABLE(TUMBLE(DATA => TABLE Orders, TIMECOL => DESCRIPTOR(order_time), SIZE => INTERVAL '5' MINUTES))
  GROUP BY window_start, window_end, product;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 5 MINUTE, order_time) AS window_start, product, COUNT(*) AS n FROM Orders GROUP BY ALL; */

--- a tumbling window with an offset
CREATE VIEW v AS
SELECT window_start, SUM(amount) AS n
  FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '10' MINUTES, INTERVAL '1' MINUTES))
  GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 10 MINUTE, order_time - INTERVAL 1 MINUTE) + INTERVAL 1 MINUTE AS window_start, SUM(amount) AS n FROM Orders GROUP BY ALL; */

--- rows with the bounds and the time of their window; refused: window_time
CREATE VIEW v AS SELECT order_id, window_start, window_end, window_time FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '10' MINUTES));
/* duckdb CREATE VIEW v AS SELECT order_id, time_bucket(INTERVAL 10 MINUTE, order_time) AS window_start, time_bucket(INTERVAL 10 MINUTE, order_time) + INTERVAL 10 MINUTE AS window_end, window_end - INTERVAL 1 MILLISECOND AS window_time FROM Orders; */

--- a hopping window
CREATE VIEW v AS
SELECT window_start, window_end, SUM(price) AS total_price
  FROM TABLE(HOP(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT b - INTERVAL (5 * i) MINUTE AS window_start, b - INTERVAL (5 * i) MINUTE + INTERVAL 10 MINUTE AS window_end, SUM(price) AS total_price FROM (SELECT *, time_bucket(INTERVAL 5 MINUTE, order_time) AS b FROM Orders), range(2) r(i) GROUP BY 1, 2; */

--- a cumulating window
CREATE VIEW v AS
SELECT window_start, window_end, SUM(price) AS total_price
  FROM TABLE(CUMULATE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT b AS window_start, b + INTERVAL (2 * i) MINUTE AS window_end, SUM(price) AS total_price FROM (SELECT *, time_bucket(INTERVAL 10 MINUTE, order_time) AS b FROM Orders), range(1, 6) r(i) WHERE order_time < b + INTERVAL (2 * i) MINUTE GROUP BY 1, 2; */

--- a session window per product
CREATE VIEW v AS
SELECT window_start, window_end, product, SUM(price) AS total_price
  FROM TABLE(SESSION(TABLE Orders PARTITION BY product, DESCRIPTOR(order_time), INTERVAL '5' MINUTES))
  GROUP BY window_start, window_end, product;
/* duckdb CREATE VIEW v AS SELECT MIN(order_time) AS window_start, MAX(order_time) + INTERVAL 5 MINUTE AS window_end, product, SUM(price) AS total_price FROM (SELECT *, SUM(n) OVER (PARTITION BY product ORDER BY order_time) AS s FROM (SELECT *, CASE WHEN order_time > LAG(order_time) OVER (PARTITION BY product ORDER BY order_time) + INTERVAL 5 MINUTE THEN 1 ELSE 0 END AS n FROM Orders)) GROUP BY product, s; */

--- a group window of older releases; refused: TUMBLE
CREATE VIEW v AS
SELECT TUMBLE_START(order_time, INTERVAL '1' DAY) AS day_start, SUM(amount) AS n FROM Orders GROUP BY TUMBLE(order_time, INTERVAL '1' DAY);
/* duckdb CREATE VIEW v AS SELECT date_trunc('day', order_time) AS day_start, SUM(amount) AS n FROM Orders GROUP BY 1; */

--- windows of windows, by window_time; refused: window_time
CREATE VIEW v AS
WITH five AS (
  SELECT window_start, window_end, window_time AS rowtime, SUM(price) AS partial
  FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '5' MINUTES))
  GROUP BY window_start, window_end, window_time)
SELECT window_start, window_end, SUM(partial) AS total
FROM TABLE(TUMBLE(TABLE five, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 10 MINUTE, order_time) AS window_start, time_bucket(INTERVAL 10 MINUTE, order_time) + INTERVAL 10 MINUTE AS window_end, SUM(price) AS total FROM Orders GROUP BY ALL; */

--- windows with GROUPING SETS
CREATE VIEW v AS
SELECT window_start, window_end, product, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '10' MINUTES))
  GROUP BY window_start, window_end, GROUPING SETS ((product), ());
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 10 MINUTE, order_time) AS ws, time_bucket(INTERVAL 10 MINUTE, order_time) + INTERVAL 10 MINUTE AS we, product, SUM(price) AS total FROM Orders GROUP BY GROUPING SETS ((ws, we, product), (ws, we)); ALTER VIEW v RENAME TO v1; CREATE VIEW v AS SELECT ws AS window_start, we AS window_end, product, total FROM v1; */

--- a top-N per window
CREATE VIEW v AS
SELECT * FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rownum
  FROM (SELECT window_start, window_end, product, SUM(price) AS price FROM TABLE(TUMBLE(TABLE Orders, DESCRIPTOR(order_time), INTERVAL '10' MINUTES))
        GROUP BY window_start, window_end, product)
) WHERE rownum <= 2;
/* duckdb CREATE VIEW v AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rownum FROM (SELECT time_bucket(INTERVAL 10 MINUTE, order_time) AS window_start, time_bucket(INTERVAL 10 MINUTE, order_time) + INTERVAL 10 MINUTE AS window_end, product, SUM(price) AS price FROM Orders GROUP BY ALL)) WHERE rownum <= 2; */

--- GROUP BY with HAVING
CREATE VIEW v AS SELECT product, SUM(amount) AS n, COUNT(DISTINCT `user`) AS users FROM Orders GROUP BY product HAVING SUM(amount) > 3;

--- GROUPING SETS with a name in place of NULL
CREATE VIEW v AS
SELECT product, `user`, COUNT(*) AS total FROM Orders GROUP BY GROUPING SETS ((product, `user`), (product), ());

--- ROLLUP and CUBE
CREATE VIEW v AS SELECT product, `user`, SUM(price) AS s FROM Orders GROUP BY ROLLUP (product, `user`);
CREATE VIEW w AS SELECT product, `user`, MAX(price) AS m FROM Orders GROUP BY CUBE (product, `user`);

--- GROUPING tells a total from a NULL
CREATE VIEW v AS SELECT product, GROUPING(product) AS g, SUM(price) AS s FROM Orders GROUP BY ROLLUP (product);

--- distinct aggregates with FILTER
CREATE VIEW v AS
SELECT COUNT(DISTINCT `user`) AS all_users, COUNT(DISTINCT `user`) FILTER (WHERE product IN ('tea', 'cup')) AS hot, COUNT(DISTINCT CASE WHEN price > 6 THEN `user` ELSE NULL END) AS rich
FROM Orders;

--- OVER with a range of time
CREATE VIEW v AS
SELECT order_id, order_time, amount,
  SUM(amount) OVER (PARTITION BY product ORDER BY order_time RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS last_ten
FROM Orders;

--- OVER with rows and a named window
CREATE VIEW v AS
SELECT order_id, SUM(amount) OVER w AS sum_amount, AVG(price) OVER w AS avg_price
FROM Orders WINDOW w AS (PARTITION BY product ORDER BY order_time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW);

--- the top N of all, without their number
CREATE VIEW v AS
SELECT order_id, product, price FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY price DESC) AS row_num FROM Orders)
WHERE row_num <= 1;

--- deduplication keeps the first row
CREATE VIEW v AS
SELECT order_id, `user`, product FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY order_time ASC) AS row_num FROM Orders)
WHERE row_num = 1;

--- deduplication by PROCTIME() keeps the last arrival; refused: PROCTIME
CREATE VIEW v AS
SELECT order_id, product FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY PROCTIME() DESC) AS row_num FROM Orders) WHERE row_num = 1;

--- a regular inner join
CREATE VIEW v AS SELECT * FROM Orders INNER JOIN Customers ON Orders.`user` = Customers.id;

--- a regular left, right and full join
CREATE VIEW v AS SELECT o.order_id, c.name FROM Orders o LEFT JOIN Customers c ON o.`user` = c.id;
CREATE VIEW w AS SELECT o.order_id, c.name FROM Orders o RIGHT JOIN Customers c ON o.`user` = c.id;
CREATE VIEW x AS SELECT o.order_id, c.name FROM Orders o FULL OUTER JOIN Customers c ON o.`user` = c.id;

--- a chain of joins
CREATE VIEW v AS
SELECT o.order_id, c.name, s.ship_id FROM Orders o JOIN Customers c ON o.`user` = c.id LEFT JOIN Shipments s ON s.order_id = o.order_id;

--- an interval join
CREATE VIEW v AS
SELECT o.order_id, s.ship_id FROM Orders o, Shipments s
WHERE o.order_id = s.order_id AND o.order_time BETWEEN s.ship_time - INTERVAL '4' HOUR AND s.ship_time;

--- a temporal join by event time; refused: FOR SYSTEM_TIME
CREATE VIEW v AS
SELECT o.order_id, c.country FROM Orders AS o LEFT JOIN Customers FOR SYSTEM_TIME AS OF o.order_time AS c ON o.`user` = c.id;

--- a temporal join by event time of an append-only history
CREATE TABLE CurrencyRates (currency STRING, rate DECIMAL(8, 4), update_time TIMESTAMP(3), WATERMARK FOR update_time AS update_time);
/* duckdb CREATE TABLE CurrencyRates (currency STRING, rate DECIMAL(8, 4), update_time TIMESTAMP); */
CREATE TABLE Sales (sale_id INT, currency STRING, sold TIMESTAMP(3), WATERMARK FOR sold AS sold - INTERVAL '1' MINUTE);
/* duckdb CREATE TABLE Sales (sale_id INT, currency STRING, sold TIMESTAMP); */
CREATE VIEW v AS
SELECT s.sale_id, s.currency, r.rate FROM Sales AS s
  LEFT JOIN CurrencyRates FOR SYSTEM_TIME AS OF s.sold AS r ON s.currency = r.currency;
/* duckdb CREATE VIEW v AS SELECT s.sale_id, s.currency, r.rate FROM Sales s
  ASOF LEFT JOIN CurrencyRates r ON s.currency = r.currency AND s.sold >= r.update_time WHERE s.sold < TIMESTAMP '2024-03-01 12:00:00'; */
INSERT INTO CurrencyRates VALUES ('EUR', 1.1, TIMESTAMP '2024-03-01 10:00:00'), ('EUR', 1.2, TIMESTAMP '2024-03-01 11:00:00');
INSERT INTO Sales VALUES (1, 'EUR', TIMESTAMP '2024-03-01 10:30:00'), (2, 'EUR', TIMESTAMP '2024-03-01 11:00:00'),
    (3, 'USD', TIMESTAMP '2024-03-01 11:30:00'), (4, 'EUR', TIMESTAMP '2024-03-01 12:30:00');
INSERT INTO CurrencyRates VALUES ('EUR', 1.3, TIMESTAMP '2024-03-01 12:00:00');

--- a lookup join by processing time
CREATE TABLE Rates (currency STRING PRIMARY KEY NOT ENFORCED, rate DECIMAL(8, 4));
/* duckdb CREATE TABLE Rates (currency STRING PRIMARY KEY, rate DECIMAL(8, 4)); */
CREATE TABLE Bills (bill_id INT PRIMARY KEY NOT ENFORCED, currency STRING, total DECIMAL(8, 2));
/* duckdb CREATE TABLE Bills (bill_id INT PRIMARY KEY, currency STRING, total DECIMAL(8, 2)); */
INSERT INTO Rates VALUES ('EUR', 1.1);
CREATE VIEW v AS
SELECT b.bill_id, r.rate FROM Bills AS b JOIN Rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON b.currency = r.currency;
/* duckdb CREATE VIEW v (bill_id, rate) AS VALUES (1, 1.1), (2, 1.2); */
INSERT INTO Bills VALUES (1, 'EUR', 5.00);
UPDATE Rates SET rate = 1.2 WHERE currency = 'EUR';
INSERT INTO Bills VALUES (2, 'EUR', 6.00);

--- a semi and an anti join as IN and NOT EXISTS
CREATE VIEW v AS SELECT order_id FROM Orders WHERE `user` IN (SELECT id FROM Customers WHERE country = 'NO');
CREATE VIEW w AS SELECT order_id FROM Orders o WHERE NOT EXISTS (SELECT * FROM Shipments s WHERE s.order_id = o.order_id);

--- UNION and UNION ALL
CREATE VIEW v AS (SELECT product AS s FROM Orders) UNION (SELECT name FROM Customers);
CREATE VIEW w AS (SELECT product AS s FROM Orders) UNION ALL (SELECT name FROM Customers);

--- INTERSECT ALL and EXCEPT ALL
CREATE VIEW v AS (SELECT `user` AS s FROM Orders) INTERSECT ALL (SELECT id FROM Customers);
CREATE VIEW w AS (SELECT `user` AS s FROM Orders) EXCEPT ALL (SELECT id FROM Customers);

--- ORDER BY and LIMIT
CREATE VIEW v AS SELECT order_id, price FROM Orders ORDER BY price DESC, order_id LIMIT 3;

--- LISTAGG and COLLECT
CREATE VIEW v AS SELECT product, LISTAGG(order_id) AS ids FROM Orders WHERE product <> 'cup' GROUP BY product;
/* duckdb CREATE VIEW v AS SELECT product, STRING_AGG(order_id, ',' ORDER BY order_id) AS ids FROM Orders WHERE product <> 'cup' GROUP BY product; */

--- FIRST_VALUE and LAST_VALUE over a window
CREATE VIEW v AS
SELECT order_id, FIRST_VALUE(amount) OVER (PARTITION BY product ORDER BY order_time) AS f, LAST_VALUE(amount) OVER (PARTITION BY product ORDER BY order_time) AS l
FROM Orders;

--- LAG and LEAD
CREATE VIEW v AS SELECT order_id, LAG(price, 1) OVER (ORDER BY order_time) AS lg, LEAD(price, 1, 0.00) OVER (ORDER BY order_time) AS ld FROM Orders;

--- UNNEST of an array
CREATE TABLE Carts (id INT PRIMARY KEY NOT ENFORCED, items ARRAY<STRING>);
/* duckdb CREATE TABLE Carts (id INT PRIMARY KEY, items STRING[]); */
INSERT INTO Carts VALUES (1, ARRAY['a', 'b']);
CREATE VIEW v AS SELECT id, item FROM Carts CROSS JOIN UNNEST(items) AS t (item);

--- VALUES with an alias; refused: VALUES
CREATE VIEW v AS SELECT order_id, price FROM (VALUES (1, 2.0), (2, 3.1)) AS t (order_id, price);

--- MATCH_RECOGNIZE; refused: MATCH_RECOGNIZE
CREATE VIEW v AS
SELECT * FROM Orders MATCH_RECOGNIZE (PARTITION BY product ORDER BY order_time MEASURES A.price AS p PATTERN (A B) DEFINE B AS B.price > A.price) AS t;

--- comparison and logic: IS [NOT] DISTINCT FROM, IS UNKNOWN
CREATE VIEW v AS SELECT order_id, `user` IS NOT DISTINCT FROM 1 AS one, (amount > 3) IS UNKNOWN AS u, NOT (price > 5) IS TRUE AS n FROM Orders;
/* duckdb CREATE VIEW v AS SELECT order_id, "user" IS NOT DISTINCT FROM 1 AS one, amount IS NULL AS u, NOT coalesce(price > 5, false) AS n FROM Orders; */

--- arithmetic functions
CREATE VIEW v AS
SELECT order_id, MOD(amount, 3) AS m, POWER(amount, 2) AS p, ABS(-price) AS a, SQRT(amount) AS s, LN(amount) AS l, LOG10(amount) AS g, LOG2(amount) AS b,
       EXP(0) AS e, CEIL(price) AS c, FLOOR(price) AS f, ROUND(price, 1) AS r, SIGN(amount - 3) AS sg, PI() AS pi, TRUNCATE(price, 1) AS t FROM Orders;
/* duckdb CREATE VIEW v AS
SELECT order_id, amount % 3 AS m, POWER(amount, 2) AS p, ABS(-price) AS a, SQRT(amount) AS s, LN(amount) AS l, LOG10(amount) AS g, LOG2(amount) AS b,
       EXP(0) AS e, CEIL(price) AS c, FLOOR(price) AS f, ROUND(price, 1) AS r, SIGN(amount - 3) AS sg, PI() AS pi, FLOOR(price * 10) / CAST(10 AS DOUBLE) AS t FROM Orders; */

--- functions of texts
CREATE VIEW v AS
SELECT id, UPPER(name) AS u, LOWER(name) AS l, CHAR_LENGTH(name) AS n, POSITION('i' IN name) AS p, TRIM(LEADING 'I' FROM name) AS t, LTRIM(name) AS lt, SUBSTRING(name FROM 1 FOR 2) AS s,
       CONCAT(name, '-', country) AS c, CONCAT_WS('~', name, country) AS w, LPAD(name, 5, '?') AS lp, REPLACE(name, 'd', 'dd') AS r, REVERSE(name) AS rv,
       REGEXP_REPLACE(name, '[aeio]', '') AS x, INITCAP(LOWER(name)) AS i, LEFT(name, 1) AS lf, REPEAT(name, 2) AS rp, ASCII(name) AS a, name || '!' AS b FROM Customers WHERE country IS NOT NULL;
/* duckdb CREATE VIEW v AS
SELECT id, UPPER(name) AS u, LOWER(name) AS l, LENGTH(name) AS n, STRPOS(name, 'i') AS p, LTRIM(name, 'I') AS t, LTRIM(name) AS lt, SUBSTRING(name, 1, 2) AS s,
       name || '-' || country AS c, CONCAT_WS('~', name, country) AS w, LPAD(name, 5, '?') AS lp, REPLACE(name, 'd', 'dd') AS r, REVERSE(name) AS rv,
       REGEXP_REPLACE(name, '[aeio]', '') AS x, name AS i, LEFT(name, 1) AS lf, REPEAT(name, 2) AS rp, ASCII(name) AS a, name || '!' AS b FROM Customers WHERE country IS NOT NULL; */

--- functions of times
CREATE VIEW v AS
SELECT order_id, EXTRACT(HOUR FROM order_time) AS h, YEAR(order_time) AS y, MONTH(order_time) AS m, DAYOFMONTH(order_time) AS d, HOUR(order_time) AS hh, MINUTE(order_time) AS mi,
       QUARTER(order_time) AS q, FLOOR(order_time TO HOUR) AS f, TIMESTAMPADD(DAY, 1, order_time) AS a, TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-03-01 10:00:00', order_time) AS df,
       DATE_FORMAT(order_time, 'yyyy-MM-dd HH:mm') AS t, order_time + INTERVAL '1' DAY AS n FROM Orders;
/* duckdb CREATE VIEW v AS
SELECT order_id, EXTRACT(HOUR FROM order_time) AS h, YEAR(order_time) AS y, MONTH(order_time) AS m, DAYOFMONTH(order_time) AS d, HOUR(order_time) AS hh, MINUTE(order_time) AS mi,
       QUARTER(order_time) AS q, date_trunc('hour', order_time) AS f, order_time + INTERVAL 1 DAY AS a, date_sub('second', TIMESTAMP '2024-03-01 10:00:00', order_time) AS df,
       strftime(order_time, '%Y-%m-%d %H:%M') AS t, order_time + INTERVAL 1 DAY AS n FROM Orders; */

--- conditions: CASE, IF, NULLIF, COALESCE, IFNULL, GREATEST
CREATE VIEW v AS
SELECT order_id, CASE product WHEN 'tea' THEN 1 WHEN 'cup' THEN 2 ELSE 0 END AS c, IF(price > 5, 'dear', 'cheap') AS i, NULLIF(amount, 1) AS n, COALESCE(`user`, -1) AS o,
       IFNULL(`user`, 0) AS f, GREATEST(amount, 4) AS g, LEAST(amount, 4) AS l FROM Orders;
/* duckdb CREATE VIEW v AS
SELECT order_id, CASE product WHEN 'tea' THEN 1 WHEN 'cup' THEN 2 ELSE 0 END AS c, CASE WHEN price > 5 THEN 'dear' ELSE 'cheap' END AS i, NULLIF(amount, 1) AS n, COALESCE("user", -1) AS o,
       COALESCE("user", 0) AS f, GREATEST(amount, 4) AS g, LEAST(amount, 4) AS l FROM Orders; */

--- CAST and TRY_CAST
CREATE VIEW v AS SELECT order_id, CAST(price AS STRING) AS s, CAST(amount AS DOUBLE) AS d, TRY_CAST(product AS INT) AS t FROM Orders;

--- arrays and maps of constants
CREATE VIEW v AS SELECT order_id, ARRAY[amount, 1][1] AS a, CARDINALITY(ARRAY[1, 2]) AS c, MAP['k', product]['k'] AS m, ARRAY_CONTAINS(ARRAY['tea', 'cup'], product) AS h FROM Orders;
/* duckdb CREATE VIEW v AS SELECT order_id, amount AS a, 2 AS c, product AS m, product IN ('tea', 'cup') AS h FROM Orders; */

--- hashes and texts of other bases; refused: error processing expression SHA256(name): Function 'SHA256' does not accept parameters (TEXT)
CREATE VIEW v AS SELECT id, MD5(name) AS m, SHA256(name) AS s, TO_BASE64(name) AS b, HEX(name) AS h FROM Customers;
/* duckdb CREATE VIEW v AS SELECT id, MD5(name) AS m, SHA256(name) AS s, base64(name::blob) AS b, hex(name) AS h FROM Customers; */

--- JSON_VALUE of a text; refused: unknown function JSON_VALUE
CREATE VIEW v AS SELECT order_id, JSON_VALUE('{"a": {"b": "x"}}', '$.a.b') AS j FROM Orders;
/* duckdb CREATE VIEW v AS SELECT order_id, 'x' AS j FROM Orders; */

--- a value of an aggregate in SELECT and WHERE
CREATE VIEW v AS SELECT order_id, price - (SELECT AVG(price) FROM Orders) AS off FROM Orders WHERE amount < (SELECT MAX(amount) FROM Orders);

--- a view on a view with IF NOT EXISTS
CREATE VIEW IF NOT EXISTS totals AS SELECT product, SUM(price * amount) AS total FROM Orders GROUP BY product;
CREATE VIEW v AS SELECT COUNT(*) AS n, MAX(total) AS top FROM totals;

--- INSERT INTO with columns and a query
CREATE TABLE Archive (order_id STRING, cents INT);
INSERT INTO Archive (order_id, cents) SELECT order_id, CAST(price * 100 AS INT) FROM Orders WHERE product = 'tea';
CREATE VIEW v AS SELECT SUM(cents) AS c FROM Archive;

--- UPDATE and DELETE with conditions
UPDATE Customers SET score = score * 2, name = UPPER(name) WHERE country = 'NO' OR score IS NULL;
DELETE FROM Customers WHERE since < DATE '2020-01-01' OR id = 4;
CREATE VIEW v AS SELECT id, name, score FROM Customers;

--- a table with a watermark, and rows that are late
CREATE TABLE Clicks (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND);
/* duckdb CREATE TABLE Clicks (id INT, "at" TIMESTAMP); */
CREATE VIEW v AS SELECT id FROM Clicks WHERE id > 1;
/* duckdb CREATE VIEW v (id) AS VALUES (2), (4); */
INSERT INTO Clicks VALUES (1, '2024-07-01 10:00:00'), (2, '2024-07-01 10:04:59');
INSERT INTO Clicks VALUES (3, '2024-07-01 10:04:53'), (4, '2024-07-01 10:04:54');

--- a table of a connector; refused: 'connector'
CREATE TABLE Clicks (id INT, url STRING) WITH ('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json');

--- a computed column; refused: generated
CREATE TABLE Sums (a INT, b INT, c AS a + b);

--- CREATE TABLE LIKE; refused: LIKE
CREATE TABLE Copies (note STRING) LIKE Orders;

--- a statement set; refused: STATEMENT SET
EXECUTE STATEMENT SET BEGIN INSERT INTO Archive SELECT order_id, 1 FROM Orders; END;
/* duckdb */

--- CREATE TEMPORARY VIEW; refused: TEMPORARY
CREATE TEMPORARY VIEW v AS SELECT product FROM Orders;

--- comments of both kinds, and a query over several lines
CREATE VIEW v AS -- what is dear
SELECT /* only
  two columns */ order_id, price FROM Orders WHERE price > 5.0;
