select generate_series(min(order_date), min(order_date) + 6, interval '1 day')::date as day
from stg_orders
