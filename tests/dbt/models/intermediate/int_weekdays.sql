select
    to_char(order_date, 'Dy') as weekday,
    extract(isodow from order_date) as weekday_number,
    count(*) as orders
from stg_orders
group by 1, 2
order by 2
