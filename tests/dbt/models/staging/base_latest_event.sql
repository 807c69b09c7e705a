select distinct on (user_id)
    user_id as customer_id,
    event_id,
    event_type,
    occurred_at
from raw_events
where user_id is not null
order by user_id, occurred_at desc, event_id desc
