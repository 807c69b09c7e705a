select
    customer_id,
    count(*) filter (where event_type = 'page_view') as page_views,
    count(*) filter (where event_type = 'add_to_cart') as carts,
    count(*) filter (where event_type = 'checkout') as checkouts,
    min(occurred_at) filter (where event_type = 'signup') as signed_up_at,
    max(case when device = 'ios' then 1 else 0 end) as uses_ios,
    max(case when device = 'android' then 1 else 0 end) as uses_android
from stg_events
group by customer_id
