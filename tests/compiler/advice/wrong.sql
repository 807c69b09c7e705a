-- Statements with one mistake each, over the tables of `test_advice.py`. The advice of each error, applied, makes a right statement.

-- names of columns
CREATE VIEW v AS SELECT custmer FROM orders;
CREATE VIEW v AS SELECT o.custmer FROM orders o;
CREATE VIEW v AS SELECT id FROM orders WHERE amuont > 10;
CREATE VIEW v AS SELECT customer, SUM(amoun) AS s FROM orders GROUP BY customer;
CREATE VIEW v AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY custmer;
CREATE VIEW v AS SELECT id FROM orders ORDER BY ammount LIMIT 3;
CREATE VIEW v AS SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.nmae;
CREATE VIEW v AS SELECT UPPER(naem) AS u FROM customers;
CREATE VIEW v AS SELECT id, RANK() OVER (PARTITION BY custmer ORDER BY amount) AS r FROM orders;
CREATE VIEW v AS WITH big AS (SELECT id, amount FROM orders) SELECT id FROM big WHERE amoutn > 5;
CREATE VIEW v AS SELECT CASE WHEN placed_att IS NULL THEN 0 ELSE 1 END AS p FROM orders;
INSERT INTO customers (name, citty) VALUES ('ann', 'Oslo');
UPDATE customers SET citi = 'Rome' WHERE name = 'ann';
UPDATE customers SET city = 'Rome' WHERE nam = 'ann';
DELETE FROM customers WHERE naame = 'ann';
CREATE VIEW v AS SELECT id FROM orders JOIN shipments USING (idd);
CREATE TABLE t (id INT, PRIMARY KEY (idd));

-- names of tables, aliases and windows
CREATE VIEW v AS SELECT id FROM oders;
CREATE VIEW v AS SELECT o.id FROM orders o JOIN custmers c ON o.customer = c.name;
CREATE VIEW v AS SELECT id FROM orders WHERE customer IN (SELECT name FROM customer);
INSERT INTO custmers VALUES ('ann', 'Oslo', 1);
UPDATE costumers SET city = 'Rome';
DELETE FROM ordres WHERE id = 1;
DROP TABLE shipmnts;
CREATE VIEW v AS SELECT ordr.id FROM orders;
CREATE VIEW v AS SELECT cust.city FROM customers AS custs;
CREATE VIEW v AS SELECT custs.* FROM customers AS cust;
CREATE VIEW v AS SELECT id, SUM(amount) OVER win AS s FROM orders WINDOW wn AS (ORDER BY id);

-- names of functions and types
CREATE VIEW v AS SELECT UPER(customer) AS u FROM orders;
CREATE VIEW v AS SELECT COALESC(customer, '?') AS c FROM orders;
CREATE VIEW v AS SELECT SUBSTING(customer, 1, 2) AS s FROM orders;
CREATE VIEW v AS SELECT customer, COUTN(*) AS n FROM orders GROUP BY customer;
CREATE VIEW v AS SELECT customer, MAXX(amount) AS n FROM orders GROUP BY customer;
CREATE VIEW v AS SELECT DATE_TRUC('day', placed_at) AS d FROM orders;
CREATE VIEW v AS SELECT id, ROWNUMBER() OVER (ORDER BY id) AS n FROM orders;
CREATE TABLE t (id INTEGR PRIMARY KEY);
CREATE TABLE t (id INT PRIMARY KEY, name VARCAHR);
CREATE VIEW v AS SELECT CAST(amount AS BIGNIT) AS b FROM orders;
CREATE VIEW v AS SELECT id::tect AS t FROM orders;

-- keywords
CRATE VIEW v AS SELECT id FROM orders;
CREATE VEIW v AS SELECT id FROM orders;
CREATE MATERIALISED VIEW v AS SELECT id FROM orders;
CREATE VIEW v AS SELCT id FROM orders;
CREATE VIEW v AS SELECT id FORM orders;
CREATE VIEW v AS SELECT id FROM orders WEHRE id > 1;
CREATE VIEW v AS SELECT customer, COUNT(*) AS n FROM orders GRUOP BY customer;
CREATE VIEW v AS SELECT customer, COUNT(*) AS n FROM orders GROUP customer;
CREATE VIEW v AS SELECT id FROM orders ODER BY id LIMIT 1;
CREATE VIEW v AS SELECT id FROM orders ORDER BY id LIMT 1;
CREATE VIEW v AS SELECT o.id FROM orders o JION customers c ON o.customer = c.name;
CREATE VIEW v AS SELECT id FROM orders WHERE amount BETWEN 1 AND 5;
CREATE VIEW v AS SELECT id FROM orders WHERE amount BETWEEN 1 TO 5;
CREATE VIEW v AS SELECT id FROM orders WHERE customer LIK 'a%';
CREATE VIEW v AS SELECT id FROM orders WHERE customer IS NUL;
CREATE VIEW v AS SELECT CASE WHEN id = 1 THAN 'a' END AS c FROM orders;
CREATE VIEW v AS SELECT CASE WHEN id = 1 THEN 'a' ELS 'b' END AS c FROM orders;
CREATE VIEW v AS SELECT id FROM orders UNOIN SELECT id FROM shipments;
CREATE VIEW v AS SELECT id FROM orders UNION ALL SELEKT id FROM shipments;
INSRT INTO customers VALUES ('ann', 'Oslo', 1);
INSERT INTO customers VALEUS ('ann', 'Oslo', 1);
INSERT INTO customers VALUE ('ann', 'Oslo', 1);
INSERT customers VALUES ('ann', 'Oslo', 1);
UPDTE customers SET city = 'Rome';
UPDATE customers ST city = 'Rome';
DELTE FROM customers;
DELETE customers WHERE name = 'ann';
DROP TABEL shipments;
CREATE TABLE t (id INT PRIMERY KEY);
CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NUL);

-- commas, parentheses, quotes, semicolons
CREATE VIEW v AS SELECT id, customer, FROM orders;
CREATE VIEW v AS SELECT id,, customer FROM orders;
CREATE VIEW v AS SELECT id customer amount FROM orders;
CREATE VIEW v AS SELECT id, UPPER(customer AS u FROM orders;
CREATE VIEW v AS SELECT id FROM orders WHERE (amount > 1 AND id = 2;
CREATE VIEW v AS SELECT id FROM orders WHERE amount > 1);
CREATE VIEW v AS SELECT COALESCE(customer, 'x',) AS c FROM orders;
CREATE VIEW v AS SELECT id FROM orders WHERE id IN (1, 2,);
CREATE VIEW v AS SELECT id FROM orders WHERE customer = 'ann;
CREATE TABLE t (id INT PRIMARY KEY name TEXT);
INSERT INTO customers VALUES ('ann', 'Oslo', 1) ('bob', 'Rome', 2);
CREATE VIEW v AS SELECT id FROM orders CREATE VIEW w AS SELECT id FROM orders;
CREATE VIEW v AS SELECT "id FROM orders;

-- reserved words
CREATE TABLE t (id INT PRIMARY KEY, order INT);
CREATE TABLE t (id INT PRIMARY KEY, group TEXT);
CREATE TABLE user (id INT PRIMARY KEY);
CREATE VIEW select AS SELECT id FROM orders;
CREATE VIEW v (id, end) AS SELECT id, amount FROM orders;

-- groups
CREATE VIEW v AS SELECT customer, COUNT(*) AS n FROM orders;
CREATE VIEW v AS SELECT customer, placed_at, SUM(amount) AS s FROM orders GROUP BY customer;
CREATE VIEW v AS SELECT c.city, SUM(o.amount) AS s FROM orders o JOIN customers c ON o.customer = c.name;
CREATE VIEW v AS SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer HAVING placed_at IS NULL;

-- ambiguous columns and names that come twice
CREATE VIEW v AS SELECT id FROM orders o JOIN shipments s ON o.id = s.id;
CREATE VIEW v AS SELECT o.id FROM orders o JOIN shipments s ON o.id = s.id WHERE id > 1;
CREATE VIEW v AS SELECT o.id FROM orders o JOIN shipments s ON id = s.id;
CREATE VIEW v AS SELECT o.id, s.id FROM orders o JOIN shipments s ON o.id = s.id;
CREATE VIEW v AS SELECT id, amount AS id FROM orders;

-- types
CREATE VIEW v AS SELECT id + customer AS x FROM orders;
CREATE VIEW v AS SELECT id FROM orders WHERE id;
CREATE VIEW v AS SELECT id FROM orders WHERE customer > 5;

-- other dialects
CREATE VIEW v AS SELECT id FROM orders WHERE customer == 'ann';
CREATE VIEW v AS SELECT id FROM orders WHERE customer = "ann";
CREATE VIEW v AS SELECT id FROM orders WHERE id =< 3;
CREATE VIEW v AS SELECT id FROM orders ORDER BY id LIMIT 2, 3;
CREATE VIEW v AS SELECT TOP 3 id FROM orders ORDER BY id;
CREATE VIEW v AS SELECT [id] FROM orders;
CREATE VIEW v AS SELECT NVL(customer, '?') AS c FROM orders;
CREATE VIEW v AS SELECT id FROM orders MINUS SELECT id FROM shipments;
CREATE VIEW v AS SELECT ISNULL(customer, '?') AS c FROM orders;
CREATE TABLE t (id INT PRIMARY KEY, n NUMBER(8, 2));
CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR2(20));
CREATE TABLE t (id INT PRIMARY KEY, at DATETIME);
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY);
CREATE TABLE t (id INT UNSIGNED PRIMARY KEY);
CREATE TABLE t (id INT PRIMARY KEY) ENGINE = InnoDB;
CREATE VIEW v AS SELECT id FROM orders WHERE customer REGEXP '^a';
CREATE VIEW v AS SELECT customer + '!' AS c FROM orders;
CREATE VIEW v AS SELECT id FROM orders WHERE amount > 1 && id > 2;
CREATE VIEW v AS SELECT IIF(id > 1, 'a', 'b') AS c FROM orders;
CREATE VIEW v AS SELECT o.id FROM orders o LEFT JOIN customers c WHERE c.name = o.customer;
CREATE VIEW v AS SELECT id FROM orders WHERE customer NOT NULL;
TRUNCATE TABLE shipments;
CREATE OR ALTER VIEW v AS SELECT id FROM orders;

-- statements of Flink SQL, RisingWave and Materialize
CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'kafka:9092', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE t (id INT, v INT) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'kafka:9092') FORMAT PLAIN ENCODE JSON;
CREATE TABLE t (id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'latest-offset');
CREATE TABLE t (id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.group.id' = 'g', 'format' = 'json');
CREATE TABLE t (id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'json.ignore-parse-errors' = 'true');
CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');
CREATE TABLE t (id INT, v INT, PRIMARY KEY (id)) WITH (connector = 'kafka', topic = 't') FORMAT PLAIN ENCODE JSON;
CREATE SOURCE s (id INT, v INT) WITH (connector = 'kafka', topic = 's') FORMAT PLAIN ENCODE JSON;
CREATE SOURCE IF NOT EXISTS s (id INT, v INT) WITH (connector = 'kafka', topic = 's') FORMAT PLAIN ENCODE JSON;
CREATE SINK out AS SELECT id FROM orders;
CREATE SINK out FROM orders WITH (connector = 'kafka', topic = 'out', primary_key = 'id') FORMAT UPSERT ENCODE JSON;
CREATE SINK out AS SELECT id FROM orders WITH (connector = 'kafka', topic = 'out') FORMAT PLAIN ENCODE JSON;
CREATE TEMPORARY VIEW v AS SELECT id FROM orders;
CREATE CONTINUOUS VIEW v AS SELECT id FROM orders;
CREATE DYNAMIC TABLE v AS SELECT id FROM orders;
CREATE LIVE MATERIALIZED VIEW v AS SELECT id FROM orders;
CREATE TEMP TABLE t (id INT PRIMARY KEY);
CREATE UNLOGGED TABLE t (id INT PRIMARY KEY);
CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT id FROM orders;
CREATE MATERIALIZED VIEW v AS SELECT id FROM orders WITH NO DATA;
CREATE MATERIALIZED VIEW v AS SELECT id FROM orders WITH DATA;
CREATE VIEW v AS SELECT id FROM orders FOR UPDATE;
CREATE VIEW v AS SELECT id FROM ONLY orders;
TRUNCATE TABLE orders;
TRUNCATE orders;
DROP SOURCE orders;
CREATE VIEW v AS SELECT REGEXP(customer, 'a') AS t FROM orders;
CREATE TABLE t (id INT, data JSON);
CREATE TABLE t (id INT, u UNIQUEIDENTIFIER);
CREATE TABLE t (id INT, ts TIMESTAMP_LTZ(3));
CREATE TABLE t (id INT) PARTITIONED BY (id) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');
CREATE TABLE t (id INT) DISTRIBUTED BY HASH(id) INTO 4 BUCKETS;
CREATE SINK IF NOT EXISTS out FROM orders;
CREATE TABLE t (id INT, data VARIANT);
CREATE VIEW v AS SELECT id FROM orders EMIT STREAM;
CREATE VIEW v AS SELECT id FROM orders EMIT WITH DELAY '1' MINUTE;
CREATE TABLE t (id INT, ts TIMESTAMP) INCLUDE KEY AS k INCLUDE timestamp WITH (connector = 'kafka', topic = 't') FORMAT PLAIN ENCODE JSON;
CREATE TABLE t (id INT, v INT, proc AS PROCTIME()) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');

-- names of the select list, quotes, units, parts of columns and relations that are left out
CREATE VIEW v AS SELECT id, amount * 2 AS twice FROM orders WHERE twice > 10;
CREATE VIEW v AS SELECT id, UPPER(customer) AS name FROM orders WHERE name = 'ANN';
CREATE VIEW v AS SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer HAVING total > 10;
CREATE VIEW v AS SELECT id, amount * 2 AS twice, twice + 1 AS more FROM orders;
CREATE VIEW v AS SELECT o.id, o.id + 1 AS following FROM orders o JOIN shipments s ON s.id = following;
CREATE VIEW v AS SELECT id FROM orders WHERE customer LIKE ann%;
CREATE VIEW v AS SELECT id FROM orders WHERE customer NOT LIKE %ann% AND id > 1;
CREATE VIEW v AS SELECT id FROM orders WHERE customer ILIKE ann;
CREATE VIEW v AS SELECT id FROM orders WHERE customer LIKE "ann%";
CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > NOW() - 3600;
CREATE VIEW v AS SELECT placed_at + 60 AS later FROM orders;
CREATE VIEW v AS SELECT details.color FROM events;
CREATE VIEW v AS SELECT id FROM events WHERE events.details.size.width = '3';
CREATE VIEW v AS SELECT place.city FROM events;
CREATE VIEW v AS SELECT city WHERE city = 'Oslo';
CREATE VIEW v AS SELECT shipments.sent_at;

-- strings, dates, numbers and arrays as people of psql, dbt and other systems write them
CREATE VIEW v AS SELECT id FROM orders WHERE customer = Ann;
CREATE VIEW v AS SELECT id FROM orders WHERE ann <> customer;
CREATE VIEW v AS SELECT id FROM orders WHERE customer IN (ann, bob);
CREATE VIEW v AS SELECT CASE customer WHEN ann THEN 1 END AS n FROM orders;
INSERT INTO customers (name, city) VALUES ('ann', Oslo);
INSERT INTO customers (name, city) VALUES ("ann", 'Oslo');
UPDATE customers SET city = 'Rome' WHERE name = ann;
DELETE FROM customers WHERE name = ann;
CREATE VIEW v AS SELECT details->color AS c FROM events;
CREATE VIEW v AS SELECT details->>color AS c FROM events;
CREATE VIEW v AS SELECT details->>'size' + 1 AS s FROM events;
CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > NOW() - '1 hour';
CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > 2026-01-31;
CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > 1760000000;
CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > 1760000000000;
CREATE VIEW v AS SELECT DATE_TRUNC(placed_at, 'day') AS d FROM orders;
CREATE VIEW v AS SELECT id FROM events WHERE active = 1;
CREATE VIEW v AS SELECT id FROM events WHERE 'red' IN labels;
CREATE VIEW v AS SELECT id FROM events WHERE 'red' NOT IN labels;
CREATE VIEW v AS SELECT id FROM events WHERE labels CONTAINS 'red';
CREATE VIEW v AS SELECT o.id o.customer FROM orders o;
CREATE VIEW v AS SELECT orders.id FROM orders o;
CREATE VIEW v AS SELECT id AS 'number' FROM orders;
CREATE VIEW v AS SELECT “id” FROM orders;
CREATE VIEW v AS SELECT id FROM orders WHERE customer = ‘ann’;
CREATE VIEW v AS SELECT id FROM {{ ref('orders') }};
CREATE VIEW v AS SELECT id FROM {{ source('shop', 'orders') }};
CREATE VIEW v AS SELECT id FROM orders WHERE GETDATE() > placed_at;
CREATE VIEW v AS SELECT IFF(amount > 1, 'a', 'b') AS x FROM orders;
CREATE VIEW v AS SELECT SAFE_CAST(customer AS INT) AS n FROM orders;
