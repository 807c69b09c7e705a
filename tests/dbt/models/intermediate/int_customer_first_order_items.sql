select distinct i.product_id, n.customer_id
from int_orders_numbered n
join stg_order_items i using (order_id)
where n.order_number = 1
