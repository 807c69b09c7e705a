CREATE STREAM order_lines AS
  SELECT id, customer, EXPLODE(lines) AS line FROM orders;

CREATE STREAM sold AS
  SELECT line->sku AS sku, id, line->qty AS qty FROM order_lines WHERE line->qty > 0 PARTITION BY line->sku;

CREATE TABLE sold_per_hour AS
  SELECT sku, SUM(qty) AS qty, COUNT(*) AS orders
  FROM sold
  WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS, GRACE PERIOD 1 DAY)
  GROUP BY sku;

-- Orders with their shipments; orders never shipped, and shipments of nothing, after their time.
CREATE STREAM deliveries AS
  SELECT ROWKEY AS id, o.customer AS customer, ARRAY_LENGTH(o.lines) AS lines, s.carrier AS carrier, s.weight AS weight
  FROM orders o
  FULL OUTER JOIN shipments s WITHIN 2 HOURS GRACE PERIOD 10 MINUTES ON o.id = s.id
  EMIT CHANGES;

CREATE TABLE per_carrier AS
  SELECT carrier, COUNT(*) AS shipments, ROUND(SUM(weight), 1) AS weight, TOPK(weight, 2) AS heaviest
  FROM shipments
  GROUP BY carrier;

CREATE TABLE experiment AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;
DROP TABLE experiment DELETE TOPIC;
