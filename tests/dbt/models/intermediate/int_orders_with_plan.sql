select
    o.order_id,
    o.order_date,
    h.plan_name,
    h.subscription_id
from stg_orders o
left join int_subscription_history h
    on o.customer_id = h.customer_id
    and o.order_date >= h.valid_from
    and o.order_date < h.valid_to
