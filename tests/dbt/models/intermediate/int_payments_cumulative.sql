select
    payment_id,
    order_id,
    amount,
    sum(amount) over (partition by order_id order by payment_id) as paid_so_far,
    amount = max(amount) over (partition by order_id) as is_largest
from stg_payments
where status = 'success'
