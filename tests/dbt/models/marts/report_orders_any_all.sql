select order_id, net_amount
from int_orders_joined
where net_amount >= all (select net_amount from int_orders_joined where status = 'returned')
   or order_id = any (select order_id from stg_payments where amount > 300)
