select order_date, revenue
from (
    select order_date, sum(net_amount) as revenue
    from int_orders_joined
    group by order_date
) days
where revenue = (
    select max(total) from (select sum(net_amount) as total from int_orders_joined group by order_date) totals
)
