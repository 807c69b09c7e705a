select
    i.order_item_id,
    i.order_id,
    o.status,
    p.product_name,
    case when o.order_id is null then 'orphan' else 'ok' end as quality
from stg_order_items i
left join stg_orders o on o.order_id = i.order_id
left join stg_products p on p.product_id = i.product_id
