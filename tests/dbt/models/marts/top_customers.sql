select customer_id, lifetime_value
from int_customer_orders
order by lifetime_value desc nulls last, customer_id
limit 10
