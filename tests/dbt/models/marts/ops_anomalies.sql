with stats as (
    select avg(orders) as mean, stddev_samp(orders) as deviation from ops_daily_kpis
)
select k.date_day, k.orders, round((k.orders - s.mean) / nullif(s.deviation, 0), 3) as z_score
from ops_daily_kpis k
cross join stats s
where abs(k.orders - s.mean) > 2 * s.deviation
