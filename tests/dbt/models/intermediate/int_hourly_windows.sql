select
    date_trunc('hour', occurred_at) as hour,
    count(*) as events,
    sum(count(*)) over (order by date_trunc('hour', occurred_at)) as running_events
from stg_events
group by date_trunc('hour', occurred_at)
