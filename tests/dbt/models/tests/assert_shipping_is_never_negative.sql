select order_id, shipping_amount from stg_orders where shipping_amount < 0
