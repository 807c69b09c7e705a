with last_orders as (
    select customer_id, max(order_date) as last_order_date from stg_orders where customer_id is not null group by 1
)
select
    c.customer_id,
    l.last_order_date,
    case
        when l.last_order_date is null then 'never bought'
        when l.last_order_date < date '2024-03-01' - interval '180 days' then 'churned'
        when l.last_order_date < date '2024-03-01' - interval '90 days' then 'at risk'
        else 'active'
    end as churn_status
from stg_customers c
left join last_orders l using (customer_id)
