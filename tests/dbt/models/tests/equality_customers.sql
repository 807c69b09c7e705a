with a as (select customer_id, email from stg_customers),
b as (select customer_id, email from dim_customers_wide),
a_minus_b as (select * from a except select * from b),
b_minus_a as (select * from b except select * from a),
unioned as (
    select 'a_minus_b' as which_diff, a_minus_b.* from a_minus_b
    union all
    select 'b_minus_a' as which_diff, b_minus_a.* from b_minus_a
)
select * from unioned
