select
    id as subscription_id,
    started_on,
    coalesce(cancelled_on, date '9999-12-31') as ended_on,
    cancelled_on is null as is_current,
    (cancelled_on - started_on) as days_active,
    age(cancelled_on, started_on) > interval '3 months' as is_long,
    date_trunc('month', started_on)::date as start_month,
    (date_trunc('month', started_on) + interval '1 month' - interval '1 day')::date as month_end,
    make_date(extract(year from started_on)::int, 1, 1) as year_start
from raw_subscriptions
where cancelled_on is null or cancelled_on > started_on
