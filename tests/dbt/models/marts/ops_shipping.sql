select
    date_trunc('month', ordered_at) as month,
    count(*) as orders,
    count(*) filter (where is_late) as late_orders,
    avg(hours_to_ship) filter (where hours_to_ship > 0) as average_hours,
    percentile_cont(0.95) within group (order by hours_to_ship) as p95_hours
from stg_orders__timestamps
group by 1
