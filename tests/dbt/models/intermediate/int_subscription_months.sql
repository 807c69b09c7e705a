select
    s.subscription_id,
    s.customer_id,
    m.month_start,
    s.monthly_amount
from stg_subscriptions as s
inner join base_months as m
    on m.month_start >= date_trunc('month', s.valid_from)
    and (s.valid_to is null or m.month_start < date_trunc('month', s.valid_to))
where not s.is_trial
