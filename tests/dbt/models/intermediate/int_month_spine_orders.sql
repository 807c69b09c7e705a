with months as (
    select month_start, month_end from base_months
)

select
    m.month_start,
    count(distinct o.customer_id) as customers,
    count(o.order_id) as orders,
    coalesce(sum(o.net_amount), 0)::numeric(14, 2) as revenue
from months m
left join int_orders_joined o
    on o.order_date between m.month_start and m.month_end
group by 1
