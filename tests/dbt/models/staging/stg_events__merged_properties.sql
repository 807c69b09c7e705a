select
    event_id,
    coalesce(properties, '{}'::jsonb) || jsonb_build_object('type', event_type) as properties,
    coalesce(properties, '{}') - 'items' as without_items,
    properties::text as properties_text
from raw_events
