-- Per article and warehouse: the key has two columns.
CREATE TABLE stock WITH (key_format='JSON') AS
  SELECT sku, warehouse, SUM(qty) AS on_hand, COUNT(*) AS movements, LATEST_BY_OFFSET(lot->batch) AS last_lot,
         MIN(lot->best_before) AS first_to_go
  FROM movements
  GROUP BY sku, warehouse;

CREATE TABLE stock_per_sku AS
  SELECT sku, SUM(qty) AS on_hand, COLLECT_SET(warehouse) AS warehouses FROM movements GROUP BY sku;

CREATE TABLE stock_value AS
  SELECT s.sku AS sku, s.on_hand AS on_hand, p.category AS category, s.on_hand * p.price AS value
  FROM stock_per_sku s
  JOIN products p ON s.sku = p.sku;

CREATE TABLE value_per_category AS
  SELECT category, SUM(value) AS value, COUNT(*) AS articles FROM stock_value GROUP BY category;

-- Rows leave this table when more comes in.
CREATE TABLE low_stock AS SELECT sku, on_hand, ARRAY_LENGTH(warehouses) AS places FROM stock_per_sku WHERE on_hand < 15;

CREATE TABLE catalogue AS
  SELECT p.sku AS sku, p.name AS name, s.name AS supplier, UCASE(IFNULL(s.country, 'unknown')) AS country
  FROM products p
  LEFT JOIN suppliers s ON p.supplier = s.id;
