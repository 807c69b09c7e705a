with changes as (
    select customer_id, plan_name, valid_from,
        lag(plan_name) over (partition by customer_id order by valid_from, subscription_id) as old_plan
    from stg_subscriptions
),
kept as (
    select * from changes where old_plan is null or old_plan <> plan_name
)
select
    md5(customer_id || '|' || valid_from) as dbt_scd_id,
    customer_id,
    plan_name,
    valid_from as dbt_valid_from,
    lead(valid_from) over (partition by customer_id order by valid_from, plan_name) as dbt_valid_to
from kept
