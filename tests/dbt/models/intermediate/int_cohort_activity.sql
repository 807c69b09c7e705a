select
    c.cohort_month,
    o.customer_id,
    (extract(year from o.order_date) - extract(year from c.cohort_month)) * 12
        + extract(month from o.order_date) - extract(month from c.cohort_month) as month_number
from int_cohorts c
join stg_orders o on o.customer_id = c.customer_id
