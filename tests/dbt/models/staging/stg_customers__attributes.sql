select
    id as customer_id,
    attributes ->> 'plan' as plan,
    attributes #>> '{utm,source}' as utm_source,
    nullif(attributes #>> '{utm,source}', '') as utm_source_clean,
    attributes -> 'utm' ->> 'campaign' as utm_campaign,
    attributes ? 'utm' as has_utm,
    jsonb_array_length(attributes -> 'tags') as tag_count,
    attributes -> 'tags' ->> 0 as first_tag,
    attributes @> '{"plan": "pro"}' as is_pro,
    case when attributes ->> 'score' ~ '^[0-9.]+$' then (attributes ->> 'score')::numeric end as score
from raw_customers
