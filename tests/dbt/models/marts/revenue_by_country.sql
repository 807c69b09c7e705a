select
    r.country_name,
    sum(o.net_amount) as revenue,
    sum(o.net_amount * (1 + r.tax_rate)) as revenue_with_tax,
    rank() over (order by sum(o.net_amount) desc) as country_rank
from int_orders_joined o
join int_customers_with_region r on r.customer_id = o.customer_id
group by r.country_name
