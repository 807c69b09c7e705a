select status, count(*) as customers
from (
    select distinct on (customer_id) customer_id, status
    from stg_orders
    where customer_id is not null
    order by customer_id, ordered_at desc, order_id desc
) latest
group by status
