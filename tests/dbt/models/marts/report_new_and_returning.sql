select
    date_trunc('month', o.order_date)::date as month,
    count(distinct o.customer_id) filter (where date_trunc('month', o.order_date) = date_trunc('month', f.first_order_date)) as new_customers,
    count(distinct o.customer_id) filter (where date_trunc('month', o.order_date) > date_trunc('month', f.first_order_date)) as returning_customers
from stg_orders o
join int_customer_orders f on f.customer_id = o.customer_id
group by 1
