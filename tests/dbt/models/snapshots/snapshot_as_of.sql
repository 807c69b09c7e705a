select distinct on (customer_id)
    customer_id, plan_name, dbt_valid_from
from int_scd2_customers
where dbt_valid_from <= date '2023-09-30'
  and (dbt_valid_to is null or dbt_valid_to > date '2023-09-30')
order by customer_id, dbt_valid_from desc, plan_name
