with lagged as (

    select
        event_id,
        customer_id,
        occurred_at,
        lag(occurred_at) over (partition by customer_id order by occurred_at, event_id) as previous_at
    from stg_events
    where customer_id is not null

),

flagged as (

    select
        *,
        case
            when previous_at is null then 1
            when occurred_at - previous_at > interval '30 minutes' then 1
            else 0
        end as is_new_session
    from lagged

),

numbered as (

    select
        *,
        sum(is_new_session) over (partition by customer_id order by occurred_at, event_id) as session_number
    from flagged

)

select
    event_id,
    customer_id,
    occurred_at,
    session_number,
    md5(customer_id::text || '-' || session_number::text) as session_id
from numbered
