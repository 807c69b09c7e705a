select
    extract(month from order_date)::int as month_number,
    sum(net_amount) filter (where extract(year from order_date) = 2023) as revenue_2023,
    sum(net_amount) filter (where extract(year from order_date) = 2024) as revenue_2024
from int_orders_joined
group by 1
having sum(net_amount) > 0
