select
    customer_id,
    jsonb_agg(jsonb_build_object('id', order_id, 'status', status) order by order_id) as orders,
    jsonb_object_agg(order_id, status order by order_id) as statuses
from stg_orders
where customer_id is not null
group by customer_id
