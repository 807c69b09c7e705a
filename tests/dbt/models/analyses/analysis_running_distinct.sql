select
    order_date,
    count(*) filter (where order_number = 1) as new_customers,
    sum(count(*) filter (where order_number = 1)) over (order by order_date) as customers_so_far
from (
    select ordered_at::date as order_date, order_number from int_orders_numbered
) numbered
group by order_date
