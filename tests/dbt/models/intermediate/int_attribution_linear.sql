with touches as (
    select o.order_id, e.event_type, count(*) over (partition by o.order_id) as touch_count
    from stg_orders o
    join stg_events e on e.customer_id = o.customer_id and e.occurred_at < o.ordered_at
)
select order_id, event_type, sum(1.0 / touch_count) as credit
from touches
group by order_id, event_type
