select
    e.customer_id,
    i.sku,
    sum(i.quantity) as quantity
from stg_events__items i
join stg_events e using (event_id)
group by e.customer_id, i.sku
