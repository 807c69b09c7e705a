select p.product_id, p.product_name
from stg_products p
left join stg_order_items i on i.product_id = p.product_id
where i.order_id is null
