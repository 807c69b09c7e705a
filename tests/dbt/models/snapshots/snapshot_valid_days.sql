select
    plan_name,
    sum(coalesce(dbt_valid_to, date '2024-06-01') - dbt_valid_from) as valid_days,
    count(*) filter (where dbt_valid_to is null) as open_ranges
from int_scd2_customers
group by plan_name
