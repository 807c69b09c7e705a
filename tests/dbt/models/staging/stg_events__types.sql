select
    event_id,
    event_type,
    case event_type when 'page_view' then 1 when 'add_to_cart' then 2 when 'checkout' then 3 else 0 end as step,
    event_type in ('add_to_cart', 'checkout') as is_conversion,
    (properties ->> 'ms')::numeric / 1000 as seconds,
    coalesce((properties ->> 'ok')::boolean, true) as is_ok,
    upper(left(event_type, 1)) || substr(event_type, 2) as label
from raw_events
