select
    event_id,
    customer_id,
    event_type,
    lead(event_type) over (partition by customer_id order by occurred_at, event_id) as next_type,
    event_type || ' > ' || coalesce(lead(event_type) over (partition by customer_id order by occurred_at, event_id), 'exit') as transition
from stg_events
where customer_id is not null
