select r.region, m.month_start, coalesce(sum(o.net_amount), 0) as revenue
from (select distinct region from int_customers_with_region) r
cross join base_months m
left join int_customers_with_region c on c.region = r.region
left join int_orders_joined o
    on o.customer_id = c.customer_id
    and date_trunc('month', o.order_date)::date = m.month_start
group by r.region, m.month_start
