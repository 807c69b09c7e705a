select
    order_id,
    customer_id,
    first_value(order_date) over w as first_order_date,
    last_value(order_id) over (
        partition by customer_id
        order by order_date, order_id
        rows between unbounded preceding and unbounded following
    ) as last_order_id,
    nth_value(order_id, 2) over w as second_order_id
from stg_orders
window w as (partition by customer_id order by order_date, order_id)
