select
    case
        when duration_seconds = 0 then 'bounce'
        when duration_seconds < 600 then 'short'
        else 'long'
    end as length,
    count(*) as sessions,
    avg(event_count) as events,
    max(duration_seconds) as longest
from int_sessions
group by 1
