select
    t.customer_id,
    t.kind,
    t.touched_at
from int_unioned_touchpoints t
inner join (
    select customer_id, max(touched_at) as touched_at
    from int_unioned_touchpoints
    group by customer_id
) m on m.customer_id = t.customer_id and m.touched_at = t.touched_at
