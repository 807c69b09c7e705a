select id as customer_id from raw_customers
except
select customer_id from raw_orders where customer_id is not null
