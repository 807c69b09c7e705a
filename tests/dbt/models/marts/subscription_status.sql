select
    s.plan_name,
    count(*) as subscriptions,
    count(*) filter (where s.valid_to is null) as active,
    sum(s.monthly_amount) filter (where s.valid_to is null) as active_mrr,
    avg(s.seats) as average_seats,
    avg(s.valid_to - s.valid_from) as average_days
from stg_subscriptions s
group by s.plan_name
