with source as (

    select * from raw_events

),

final as (

    select
        event_id,
        user_id as customer_id,
        event_type,
        split_part(page, '?', 1) as page_path,
        nullif(split_part(page, '?', 2), '') as query_string,
        occurred_at,
        date_trunc('day', occurred_at)::date as event_date,
        properties ->> 'device' as device,
        (properties ->> 'ms')::int as duration_ms,
        (properties ->> 'ok')::boolean as is_ok,
        properties -> 'items' as items

    from source

)

select * from final
