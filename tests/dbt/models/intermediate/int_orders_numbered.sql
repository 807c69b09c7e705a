select
    order_id,
    customer_id,
    ordered_at,
    row_number() over (partition by customer_id order by ordered_at, order_id) as order_number,
    row_number() over (partition by customer_id order by ordered_at desc, order_id desc) = 1 as is_latest,
    count(*) over (partition by customer_id) as customer_order_count
from stg_orders
where customer_id is not null
