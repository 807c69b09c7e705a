select
    p.category,
    o.status,
    grouping(p.category, o.status) as level,
    sum(i.net_amount) as revenue
from stg_order_items i
join stg_orders o using (order_id)
join stg_products p using (product_id)
group by cube (p.category, o.status)
