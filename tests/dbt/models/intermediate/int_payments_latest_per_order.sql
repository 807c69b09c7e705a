select *
from (
    select
        payment_id, order_id, status, paid_at,
        row_number() over (partition by order_id order by paid_at desc nulls last, payment_id desc) as rn
    from stg_payments
) p
where rn = 1
