select
    date_day,
    revenue,
    avg(revenue) over (order by date_day rows between 6 preceding and current row) as revenue_7d,
    sum(orders) over (order by date_day rows between 27 preceding and current row) as orders_28d
from ops_daily_kpis
