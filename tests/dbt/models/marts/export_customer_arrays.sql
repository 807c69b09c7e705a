select
    customer_id,
    array_agg(order_id order by order_date, order_id) as order_ids,
    array_agg(distinct status order by status) as statuses,
    array_length(array_agg(order_id), 1) as number_of_orders
from stg_orders
where customer_id is not null
group by customer_id
