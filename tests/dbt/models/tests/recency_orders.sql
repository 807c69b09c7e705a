with recency as (
    select max(order_date) as most_recent from stg_orders
)
select most_recent, date '2030-01-01' as threshold
from recency
where most_recent < date '2030-01-01'
