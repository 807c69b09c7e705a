with base as (
    select
        customer_id,
        date '2024-03-01' - max(order_date) as recency_days,
        count(*) as frequency,
        sum(net_amount) as monetary
    from int_orders_joined
    where customer_id is not null
    group by customer_id
)
select
    customer_id,
    recency_days,
    frequency,
    monetary,
    ntile(3) over (order by recency_days desc, customer_id) as r,
    ntile(3) over (order by frequency, customer_id) as f,
    ntile(3) over (order by monetary, customer_id) as m
from base
