with all_values as (
    select country_code as value_field, count(*) as n_records
    from stg_customers
    group by country_code
)
select * from all_values where value_field not in ('DE', 'US', 'FR', 'GB')
