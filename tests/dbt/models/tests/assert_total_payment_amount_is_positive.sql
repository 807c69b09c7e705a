-- refunds have a negative amount, so the total should always be >= 0
select
    order_id,
    sum(amount) as total_amount
from stg_payments
group by order_id
having not(sum(amount) >= 0)
