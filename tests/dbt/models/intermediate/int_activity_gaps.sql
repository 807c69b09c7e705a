select *
from (
    select
        customer_id,
        event_date as last_seen,
        lead(event_date) over (partition by customer_id order by event_date) as seen_again,
        lead(event_date) over (partition by customer_id order by event_date) - event_date as gap_days
    from int_activity_days
) as gaps
where gap_days > 14
