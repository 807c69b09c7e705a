select
    customer_id,
    (array_agg(status order by ordered_at, order_id))[1] as first_status,
    (array_agg(status order by ordered_at desc, order_id desc))[1] as last_status,
    min(status) as lowest_status,
    max(note) as highest_note
from stg_orders
where customer_id is not null
group by customer_id
