with a as (
    with inner_orders as (select order_id, customer_id, status from stg_orders where status = 'completed')
    select customer_id, count(*) as completed from inner_orders group by customer_id
),
b as (select customer_id, count(*) as total from stg_orders group by customer_id)
select b.customer_id, coalesce(a.completed, 0) as completed, b.total, coalesce(a.completed, 0)::float / b.total as rate
from b left join a on a.customer_id = b.customer_id
where b.customer_id is not null
