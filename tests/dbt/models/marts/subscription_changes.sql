select
    c.customer_id,
    c.plan_name,
    c.dbt_valid_from,
    coalesce(c.dbt_valid_to, '9999-12-31') as dbt_valid_to,
    lag(c.plan_name) over (partition by c.customer_id order by c.dbt_valid_from, c.plan_name) as previous_plan
from int_scd2_customers c
