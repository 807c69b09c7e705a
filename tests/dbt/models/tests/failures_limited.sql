select count(*) as failures, coalesce(max(n_records), 0) as worst
from (select * from unique_stg_customers_email order by n_records desc limit 5) dbt_internal_test
