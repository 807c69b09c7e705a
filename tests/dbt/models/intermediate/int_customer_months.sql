select
    c.customer_id,
    m.month_start,
    exists (
        select 1
        from stg_orders as o
        where o.customer_id = c.customer_id
          and date_trunc('month', o.order_date) = m.month_start
    ) as has_ordered
from stg_customers as c
cross join base_months as m
where m.month_start >= date_trunc('month', c.created_at)::date
