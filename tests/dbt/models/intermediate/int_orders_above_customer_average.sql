select o.order_id, o.customer_id, o.net_amount
from int_orders_joined o
where o.net_amount > (
    select avg(i.net_amount) from int_orders_joined i where i.customer_id = o.customer_id
)
