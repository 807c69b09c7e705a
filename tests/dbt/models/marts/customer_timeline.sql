select
    customer_id,
    touched_at,
    kind,
    row_number() over (partition by customer_id order by touched_at, touchpoint_id) as step,
    touched_at - min(touched_at) over (partition by customer_id) > interval '90 days' as is_late_stage
from int_unioned_touchpoints
