select
    customer_id,
    min(order_date) as first_order_date,
    max(order_date) as most_recent_order_date,
    count(order_id) as number_of_orders,
    sum(net_amount) as lifetime_value,
    count(distinct date_trunc('month', order_date)) as active_months
from int_orders_joined
where customer_id is not null
group by customer_id
