with ordered as (
    select
        session_id,
        string_agg(e.event_type, '>' order by e.occurred_at, e.event_id) as path
    from int_events_sessionised s
    join stg_events e on e.event_id = s.event_id
    group by session_id
)
select path, count(*) as sessions
from ordered
group by path
having count(*) > 1
