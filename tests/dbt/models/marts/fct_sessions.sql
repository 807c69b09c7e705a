select
    e.session_id,
    e.customer_id,
    e.session_start,
    e.event_count,
    e.duration_seconds,
    e.landing_page,
    exists (
        select 1 from stg_orders o
        where o.customer_id = e.customer_id
          and o.ordered_at between e.session_start and e.session_end + interval '1 day'
    ) as has_converted
from int_sessions_enriched e
