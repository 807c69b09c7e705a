select
    to_char(ordered_at, 'ID') as weekday,
    extract(hour from ordered_at)::int as hour,
    count(*) as orders
from stg_orders
group by 1, 2
