select customer_id, email
from stg_customers
where customer_id not in (select customer_id from stg_orders where customer_id is not null)
