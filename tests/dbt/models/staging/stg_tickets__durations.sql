select
    id as ticket_id,
    opened_at,
    closed_at,
    closed_at - opened_at > interval '48 hours' as is_slow,
    extract(epoch from closed_at - opened_at)::bigint / 60 as minutes_open,
    greatest(opened_at, closed_at) as last_touched_at,
    opened_at::date as opened_date,
    opened_at::time as opened_time
from raw_tickets
