select
    i.order_item_id,
    i.order_id,
    o.customer_id,
    o.order_date,
    i.product_id,
    p.product_name,
    p.category,
    i.quantity,
    i.net_amount,
    i.net_amount - i.quantity * p.unit_cost as margin,
    row_number() over (partition by i.order_id order by i.net_amount desc, i.line_no) as line_rank
from stg_order_items as i
inner join stg_orders as o on o.order_id = i.order_id
left join stg_products as p on p.product_id = i.product_id
