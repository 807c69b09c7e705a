select customer_id
from stg_customers
where customer_id is null
