select distinct customer_id, event_date
from stg_events
where customer_id is not null
union
select customer_id, order_date
from stg_orders
where customer_id is not null
