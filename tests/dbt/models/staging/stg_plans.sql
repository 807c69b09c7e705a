with plans (plan_name, tier, list_price) as (
    values ('basic', 1, 19.00), ('pro', 2, 49.00), ('team', 3, 99.00)
)

select plan_name, tier, list_price::numeric(10, 2) as list_price from plans
