select id as order_id, ordered_at, ordered_at < now() as is_past
from raw_orders
