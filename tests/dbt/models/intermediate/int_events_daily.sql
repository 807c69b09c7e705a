select
    event_date,
    event_type,
    count(*) as events,
    count(distinct customer_id) as customers,
    avg(duration_ms) as average_ms,
    sum(case when is_ok then 1 else 0 end) as ok_count
from stg_events
group by event_date, event_type
