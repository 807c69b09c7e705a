select
    coalesce(r.region, 'All') as region,
    coalesce(o.status, 'all') as status,
    count(*) as orders,
    sum(o.net_amount) as revenue
from int_orders_joined o
join int_customers_with_region r on r.customer_id = o.customer_id
group by rollup (r.region, o.status)
