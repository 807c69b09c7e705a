select
    session_id,
    customer_id,
    min(occurred_at) as session_start,
    max(occurred_at) as session_end,
    count(*) as event_count,
    extract(epoch from max(occurred_at) - min(occurred_at))::int as duration_seconds
from int_events_sessionised
group by session_id, customer_id
