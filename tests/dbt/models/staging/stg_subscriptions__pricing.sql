select
    id as subscription_id,
    plan,
    mrr,
    mrr * 12 as arr,
    round(mrr / nullif(seats, 0), 2) as mrr_per_seat,
    case when is_trial then 0 else mrr end as billed_mrr,
    power(seats, 2) as seats_squared,
    sqrt(seats::double precision) as seats_root,
    round(ln(mrr::double precision)::numeric, 4) as log_mrr
from raw_subscriptions
