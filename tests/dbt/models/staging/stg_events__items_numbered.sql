select
    e.event_id,
    i.position,
    i.item ->> 'sku' as sku
from raw_events e
cross join lateral jsonb_array_elements(e.properties -> 'items') with ordinality as i(item, position)
