select id as customer_id from raw_customers
intersect
select customer_id from raw_orders
