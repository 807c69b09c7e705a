select
    order_id,
    customer_id,
    order_date,
    net_amount,
    sum(net_amount) over (partition by customer_id order by order_date, order_id) as running_amount,
    avg(net_amount) over (partition by customer_id order by order_date, order_id rows between 2 preceding and current row) as moving_average,
    max(net_amount) over (partition by customer_id order by order_date, order_id rows unbounded preceding) as best_so_far,
    count(*) over (order by order_date range between interval '7 days' preceding and current row) as orders_in_week
from int_orders_joined
