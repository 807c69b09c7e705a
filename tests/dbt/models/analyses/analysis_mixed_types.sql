select
    case when i.net_amount is null then 0 else i.net_amount end as amount,
    coalesce(o.shipping_amount, 0) + 1 as shipping,
    o.order_id::numeric / 7 as seventh,
    o.order_id / 7 as whole_seventh,
    (o.order_id % 7)::smallint as rest,
    -o.order_id as negative,
    o.order_id::text || '/' || o.status as label
from stg_orders o
left join int_order_items_summed i using (order_id)
