with steps as (

    select
        customer_id,
        min(case when event_type = 'page_view' then occurred_at end) as viewed_at,
        min(case when event_type = 'add_to_cart' then occurred_at end) as carted_at,
        min(case when event_type = 'checkout' then occurred_at end) as checked_out_at
    from stg_events
    where customer_id is not null
    group by customer_id

)

select
    customer_id,
    viewed_at is not null as has_viewed,
    carted_at > viewed_at as has_carted_after,
    checked_out_at > carted_at and carted_at > viewed_at as has_checked_out_after,
    extract(epoch from (checked_out_at - viewed_at)) / 86400 as days_to_checkout
from steps
