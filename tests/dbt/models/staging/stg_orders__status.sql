select
    id as order_id,
    status as original_status,
    lower(status) as status,
    case
        when lower(status) in ('placed', 'shipped') then 'open'
        when lower(status) = 'completed' then 'closed'
        when lower(status) in ('returned', 'cancelled') then 'lost'
    end as status_group,
    lower(status) = any(array['placed', 'shipped']) as is_open,
    lower(status) not in ('returned', 'cancelled') as is_kept,
    status is distinct from lower(status) as was_recased
from raw_orders
