with sizes as (
    select cohort_month, count(*) as cohort_size
    from int_cohorts
    group by cohort_month
),
active as (
    select cohort_month, month_number, count(distinct customer_id) as customers
    from int_cohort_activity
    group by cohort_month, month_number
)
select
    a.cohort_month,
    s.cohort_size,
    a.month_number,
    a.customers,
    round(a.customers::numeric / s.cohort_size, 3) as retention
from active a
join sizes s on s.cohort_month = a.cohort_month
