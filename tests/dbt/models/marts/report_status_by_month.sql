select
    date_trunc('month', order_date)::date as month,
    count(*) filter (where status = 'completed') as completed,
    count(*) filter (where status = 'returned') as returned,
    round(100.0 * count(*) filter (where status = 'returned') / nullif(count(*), 0), 2) as return_rate
from stg_orders
group by date_trunc('month', order_date)
