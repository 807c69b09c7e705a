select
    date_trunc('week', date_day)::date as week,
    sum(orders) as orders,
    sum(revenue) as revenue,
    sum(tickets)::float / nullif(sum(orders), 0) as tickets_per_order
from ops_daily_kpis
group by 1
