-- The final tables and streams, recomputed by DuckDB from the records of the topics.
CREATE TABLE movements AS
  SELECT partition, "offset", key AS sku, CAST(value->>'WAREHOUSE' AS INT) AS warehouse, CAST(value->>'QTY' AS INT) AS qty,
         value->'LOT'->>'BATCH' AS lot, DATE '1970-01-01' + CAST(value->'LOT'->>'BEST_BEFORE' AS INT) AS best_before
  FROM topic('inv.movements') WHERE key IS NOT NULL;
CREATE VIEW want_STOCK AS
  SELECT sku AS SKU, warehouse AS WAREHOUSE, coalesce(sum(qty), 0) AS ON_HAND, count(*) AS MOVEMENTS,
         arg_max(lot, "offset") AS LAST_LOT, min(best_before) AS FIRST_TO_GO
  FROM movements WHERE warehouse IS NOT NULL GROUP BY sku, warehouse;
CREATE VIEW per_sku AS
  SELECT sku, coalesce(sum(qty), 0) AS on_hand, count(DISTINCT coalesce(warehouse, -1)) AS places FROM movements GROUP BY sku;
CREATE VIEW want_STOCK_PER_SKU AS SELECT sku AS SKU, on_hand AS ON_HAND FROM per_sku;
CREATE VIEW want_LOW_STOCK AS SELECT sku AS SKU, on_hand AS ON_HAND, places AS PLACES FROM per_sku WHERE on_hand < 15;

CREATE TABLE products AS
  SELECT key AS sku, value->>'NAME' AS name, value->>'CATEGORY' AS category, CAST(value->>'PRICE' AS DECIMAL(8, 2)) AS price,
         CAST(value->>'SUPPLIER' AS INT) AS supplier
  FROM (FROM topic('inv.products') QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1) WHERE value IS NOT NULL;
CREATE VIEW want_STOCK_VALUE AS
  SELECT sku AS SKU, on_hand AS ON_HAND, category AS CATEGORY, on_hand * price AS VALUE FROM per_sku JOIN products USING (sku);
CREATE VIEW want_VALUE_PER_CATEGORY AS
  SELECT CATEGORY, sum(VALUE) AS VALUE, count(*) AS ARTICLES FROM want_STOCK_VALUE WHERE CATEGORY IS NOT NULL GROUP BY CATEGORY;
CREATE VIEW which AS SELECT 'VALUE_PER_CATEGORY', 'ARTICLES > 0';

CREATE VIEW want_CATALOGUE AS
  SELECT p.sku AS SKU, p.name AS NAME, s.name AS SUPPLIER, upper(coalesce(s.country, 'unknown')) AS COUNTRY
  FROM products p LEFT JOIN (
    SELECT CAST(key AS INT) AS id, value->>'NAME' AS name, value->>'COUNTRY' AS country
    FROM (FROM topic('inv.suppliers') QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1) WHERE value IS NOT NULL
  ) s ON s.id = p.supplier;

CREATE TABLE orders AS
  SELECT CAST(key AS INT) AS id, "timestamp" AS ts, value->>'CUSTOMER' AS customer,
         CAST(value->'LINES' AS STRUCT("SKU" VARCHAR, "QTY" INT)[]) AS lines FROM topic('inv.orders');
CREATE TABLE shipments AS
  SELECT CAST(key AS INT) AS id, "timestamp" AS ts, value->>'CARRIER' AS carrier, CAST(value->>'WEIGHT' AS DOUBLE) AS weight
  FROM topic('inv.shipments');
CREATE VIEW order_lines AS SELECT id, ts, unnest(lines) AS line FROM orders;
CREATE VIEW want_SOLD AS SELECT line."SKU" AS SKU, id AS ID, line."QTY" AS QTY FROM order_lines WHERE line."QTY" > 0;
CREATE VIEW want_SOLD_PER_HOUR AS
  SELECT line."SKU" AS SKU, ts // 3600000 * 3600000 AS WINDOWSTART, sum(line."QTY") AS QTY, count(*) AS ORDERS
  FROM order_lines WHERE line."QTY" > 0 AND line."SKU" IS NOT NULL GROUP BY ALL;

CREATE VIEW want_DELIVERIES AS
  WITH ends AS (SELECT max(ts) AS reached FROM (SELECT ts FROM orders UNION ALL SELECT ts FROM shipments)),
  both_ AS (
    SELECT coalesce(o.id, s.id) AS id, coalesce(o.ts, s.ts) AS ts, o.id IS NOT NULL AND s.id IS NOT NULL AS met, customer, lines, carrier, weight
    FROM orders o FULL JOIN shipments s ON s.id = o.id AND s.ts BETWEEN o.ts - 7200000 AND o.ts + 7200000
  )
  SELECT id AS ID, customer AS CUSTOMER, len(lines) AS LINES, carrier AS CARRIER, weight AS WEIGHT
  FROM both_, ends WHERE met OR ts + 7800000 < reached;

CREATE VIEW want_PER_CARRIER AS
  SELECT carrier AS CARRIER, count(*) AS SHIPMENTS, round(sum(weight), 1) AS WEIGHT, list_sort(list(weight), 'DESC')[1:2] AS HEAVIEST
  FROM shipments GROUP BY carrier;
