select
    id as order_id,
    order_date,
    date_trunc('month', order_date)::date as order_month,
    date_trunc('week', order_date)::date as order_week,
    date_trunc('quarter', order_date)::date as order_quarter,
    extract(year from order_date)::int as order_year,
    extract(dow from order_date)::int as day_of_week,
    extract(isodow from order_date) in (6, 7) as is_weekend,
    extract(doy from order_date)::int as day_of_year,
    to_char(order_date, 'YYYY-MM') as year_month,
    to_char(order_date, 'Day') as day_name,
    order_date + 30 as due_date,
    (order_date + interval '1 month')::date as next_month,
    order_date - date '2023-01-01' as days_since_start
from raw_orders
