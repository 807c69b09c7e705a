select
    d.date_day,
    count(o.order_id) as orders,
    coalesce(sum(o.net_amount), 0) as revenue
from base_days as d
left join int_orders_joined as o on o.order_date = d.date_day
group by d.date_day
