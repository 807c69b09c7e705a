select
    date_trunc('month', order_date)::date as order_month,
    count(*) as orders,
    count(distinct customer_id) as customers,
    sum(net_amount) as revenue,
    sum(net_amount) / nullif(count(distinct customer_id), 0) as revenue_per_customer
from int_orders_joined
where status not in ('cancelled', 'returned')
group by 1
order by 1
