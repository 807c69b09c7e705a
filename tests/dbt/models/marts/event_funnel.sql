select
    count(*) filter (where has_viewed) as viewers,
    count(*) filter (where has_carted_after) as carters,
    count(*) filter (where has_checked_out_after) as buyers,
    avg(days_to_checkout) filter (where has_checked_out_after) as average_days
from int_events_funnel_steps
