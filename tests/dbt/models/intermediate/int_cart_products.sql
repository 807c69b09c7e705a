select c.customer_id, c.sku, p.product_name, c.quantity * p.list_price as cart_value
from int_cart_items c
left join stg_products p on p.sku = c.sku
