select *
from raw_order_items
where quantity > 0 and coalesce(discount, 0) < 0.5
