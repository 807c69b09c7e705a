select
    order_id,
    customer_id,
    order_date,
    lag(order_date) over (partition by customer_id order by order_date, order_id) as previous_order_date,
    lead(order_date) over (partition by customer_id order by order_date, order_id) as next_order_date,
    order_date - lag(order_date) over (partition by customer_id order by order_date, order_id) as days_since_previous,
    lag(status, 2, 'none') over (partition by customer_id order by order_date, order_id) as status_before_last
from stg_orders
