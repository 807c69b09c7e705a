select
    count(*) as failures,
    count(*) != 0 as should_warn,
    count(*) > 10 as should_error
from (
    select email from stg_customers where email is null
) dbt_internal_test
