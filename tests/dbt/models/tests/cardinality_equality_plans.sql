with table_a as (select plan_name, count(*) as num_rows from stg_subscriptions group by plan_name),
table_b as (select plan_name, count(*) as num_rows from subscription_status group by plan_name),
except_a as (select plan_name from table_a except select plan_name from table_b),
except_b as (select plan_name from table_b except select plan_name from table_a)
select * from except_a union all select * from except_b
