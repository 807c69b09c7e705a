select
    event_id,
    occurred_at,
    date_trunc('hour', occurred_at) as event_hour,
    date_trunc('day', occurred_at at time zone 'Europe/Berlin') as berlin_day,
    floor(extract(epoch from occurred_at) / 900)::bigint as quarter_hour,
    to_timestamp(floor(extract(epoch from occurred_at) / 900) * 900) as quarter_start,
    occurred_at between '2023-01-01' and '2023-12-31 23:59:59' as is_2023
from raw_events
