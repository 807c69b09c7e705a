select a.events, b.events as in_sessions
from (select count(*) as events from stg_events where customer_id is not null) a
cross join (select coalesce(sum(event_count), 0) as events from int_sessions) b
where a.events <> b.events
