select
    event_id,
    x.key,
    x.value
from raw_events, jsonb_each_text(properties - 'items') as x
