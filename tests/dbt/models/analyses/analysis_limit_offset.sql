select order_id, net_amount
from int_orders_joined
order by net_amount desc, order_id
limit 10 offset 5
