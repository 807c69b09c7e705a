select
    customer_id,
    max(case when order_number = 2 then ordered_at end) - max(case when order_number = 1 then ordered_at end) > interval '60 days' as is_slow,
    extract(day from max(case when order_number = 2 then ordered_at end) - max(case when order_number = 1 then ordered_at end)) as days
from int_orders_numbered
where order_number <= 2
group by customer_id
having count(*) = 2
