select
    customer_id,
    date_trunc('month', min(order_date))::date as cohort_month
from stg_orders
where customer_id is not null
group by customer_id
