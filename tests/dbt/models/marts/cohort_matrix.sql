select
    cohort_month,
    count(distinct customer_id) filter (where month_number = 0) as m0,
    count(distinct customer_id) filter (where month_number = 1) as m1,
    count(distinct customer_id) filter (where month_number = 2) as m2,
    count(distinct customer_id) filter (where month_number = 3) as m3,
    count(distinct customer_id) filter (where month_number > 3) as later
from int_cohort_activity
group by cohort_month
