select
    o.order_id,
    o.order_date,
    c.first_name || ' ' || c.last_name as customer_name,
    coalesce(c.email, 'n/a') as email,
    i.line_no,
    p.product_name,
    i.quantity,
    i.net_amount
from stg_orders o
join stg_customers c on c.customer_id = o.customer_id
join stg_order_items i on i.order_id = o.order_id
join stg_products p on p.product_id = i.product_id
where o.status = 'completed'
order by o.order_id, i.line_no
