with ranked as (
    select
        s.session_id,
        s.customer_id,
        e.event_type,
        e.page_path,
        e.device,
        row_number() over (partition by s.session_id order by e.occurred_at, e.event_id) as event_number
    from int_events_sessionised s
    join stg_events e on e.event_id = s.event_id
)

select session_id, customer_id, event_type as landing_type, page_path as landing_page, device
from ranked
where event_number = 1
