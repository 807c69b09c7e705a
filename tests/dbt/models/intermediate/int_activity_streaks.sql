with numbered as (

    select
        customer_id,
        event_date,
        event_date - (row_number() over (partition by customer_id order by event_date))::int as island
    from int_activity_days

)

select
    customer_id,
    min(event_date) as streak_start,
    max(event_date) as streak_end,
    count(*) as streak_days
from numbered
group by customer_id, island
