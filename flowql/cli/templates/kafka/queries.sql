-- Orders worth a second look.
CREATE MATERIALIZED VIEW large_orders WITH (priority = 'high') AS
  SELECT customer, id, item, amount
  FROM orders
  WHERE amount >= 100;

-- What each customer spends in an hour.
CREATE MATERIALIZED VIEW spent_per_hour AS
  SELECT customer, window_start, COUNT(*) AS orders, SUM(amount) AS spent
  FROM TUMBLE(orders, ordered_at, INTERVAL '1 hour')
  GROUP BY customer, window_start;
