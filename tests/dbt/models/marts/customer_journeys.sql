select
    customer_id,
    string_agg(kind, ' > ' order by touched_at, touchpoint_id) as journey,
    count(*) as steps,
    (array_agg(kind order by touched_at, touchpoint_id))[1] as first_kind
from int_unioned_touchpoints
group by customer_id
having count(*) > 3
