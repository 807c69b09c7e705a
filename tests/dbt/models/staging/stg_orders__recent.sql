select id as order_id, ordered_at
from raw_orders
where ordered_at < current_timestamp
  and order_date <= current_date
