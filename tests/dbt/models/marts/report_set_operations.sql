(select customer_id from stg_orders where status = 'completed'
 intersect
 select customer_id from stg_subscriptions)
except
select customer_id from stg_tickets where customer_id is not null
