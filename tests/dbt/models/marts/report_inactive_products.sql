select p.product_id, p.product_name, max(o.order_date) as last_sold_on
from stg_products p
left join stg_order_items i using (product_id)
left join stg_orders o using (order_id)
group by p.product_id, p.product_name
having max(o.order_date) is null or max(o.order_date) < date '2024-02-01'
