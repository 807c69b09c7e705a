select o.order_id, touch.event_id, touch.page_path
from stg_orders o
left join lateral (
    select e.event_id, e.page_path
    from stg_events e
    where e.customer_id = o.customer_id
      and e.occurred_at <= o.ordered_at
    order by e.occurred_at, e.event_id
    limit 1
) as touch on true
