-- One JSON object per order. Orders may arrive ten minutes late.
CREATE STREAM orders (
  customer TEXT KEY,
  id INTEGER,
  item TEXT,
  amount NUMERIC(10, 2),
  ordered_at TIMESTAMPTZ,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10 minutes'
) WITH (kafka_topic = 'orders', partitions = 2, value_format = 'JSON');
