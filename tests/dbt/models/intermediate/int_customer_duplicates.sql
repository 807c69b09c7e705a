select
    email,
    count(*) as copies,
    min(customer_id) as kept_id,
    array_agg(customer_id order by customer_id) as all_ids
from stg_customers
where email is not null
group by email
having count(*) > 1
