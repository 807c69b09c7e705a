select
    e.event_id,
    item.value ->> 'sku' as sku,
    (item.value ->> 'qty')::integer as quantity
from raw_events as e,
    lateral jsonb_array_elements(e.properties -> 'items') as item
where e.properties ? 'items'
