select
    o.order_id,
    jsonb_build_object(
        'id', o.order_id,
        'customer', c.email,
        'items', coalesce(i.items, '[]'::jsonb)
    ) as document
from stg_orders o
left join stg_customers c on c.customer_id = o.customer_id
left join (
    select order_id, jsonb_agg(jsonb_build_object('product', product_id, 'quantity', quantity) order by line_no) as items
    from stg_order_items
    group by order_id
) i on i.order_id = o.order_id
