with firsts as (
    select customer_id, min(order_date) as first_date from stg_orders where customer_id is not null group by customer_id
),
seconds as (
    select f.customer_id, min(o.order_date) as second_date
    from firsts f
    join stg_orders o on o.customer_id = f.customer_id and o.order_date > f.first_date
    group by f.customer_id
)
select
    date_trunc('quarter', f.first_date)::date as quarter,
    count(*) as customers,
    count(s.customer_id) as repeaters,
    avg(s.second_date - f.first_date) as days_between
from firsts f
left join seconds s on s.customer_id = f.customer_id
group by 1
