select
    p.product_id,
    p.product_name,
    p.category,
    sum(i.quantity) as units,
    sum(i.net_amount) as revenue,
    sum(i.net_amount - i.quantity * coalesce(p.unit_cost, 0)) as margin,
    count(distinct i.order_id) as orders
from stg_products as p
left join stg_order_items as i on i.product_id = p.product_id
group by p.product_id, p.product_name, p.category
