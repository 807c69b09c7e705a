select order_id, net_amount
from int_orders_joined
where net_amount > (select avg(net_amount) from int_orders_joined)
