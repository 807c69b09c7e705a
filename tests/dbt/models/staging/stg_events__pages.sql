select
    event_id,
    page,
    regexp_replace(page, '^https?://[^/]+', '') as path,
    (regexp_match(page, '^https?://([^/]+)'))[1] as host,
    split_part(split_part(page, '?', 1), '/', 2) as section,
    page like '/products/%' as is_product,
    substring(page from '/products/([0-9]+)')::int as product_id,
    starts_with(page, 'https') as is_absolute
from raw_events
where page is not null
