select order_id from stg_payments p
where not exists (select 1 from stg_orders o where o.order_id = p.order_id)
