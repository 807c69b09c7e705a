with monthly as (
    select
        c.customer_id,
        c.cohort_month,
        a.month_number,
        count(*) as orders
    from int_cohorts c
    join int_cohort_activity a on a.customer_id = c.customer_id
    group by 1, 2, 3
)
select
    customer_id,
    month_number,
    sum(orders) over (partition by customer_id order by month_number) as cumulative_orders
from monthly
