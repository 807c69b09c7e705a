select distinct on (lower(status))
    lower(status) as status,
    id as first_order_id,
    order_date
from raw_orders
where status is not null
order by lower(status), order_date, id
