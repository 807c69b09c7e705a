select 1
from stg_order_items
where not(discount_rate between 0 and 1)
