select
    order_id,
    sum(amount) filter (where status = 'success') as paid_amount,
    sum(amount) filter (where status = 'refunded') as refunded_amount,
    count(*) filter (where status = 'failed') as failed_count,
    count(distinct payment_method) as method_count,
    bool_or(status = 'failed') as had_failure,
    bool_and(status = 'success') as all_succeeded,
    max(paid_at) filter (where status = 'success') as last_paid_at
from stg_payments
group by 1
