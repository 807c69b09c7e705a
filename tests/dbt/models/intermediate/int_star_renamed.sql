select o.*, c.email as customer_email, c.country_code
from stg_orders o
left join stg_customers c on c.customer_id = o.customer_id
where o.status <> 'unknown'
