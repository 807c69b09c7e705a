with daily as (
    select event_date, count(distinct customer_id) as dau from int_activity_days group by event_date
),
monthly as (
    select date_trunc('month', event_date)::date as month, count(distinct customer_id) as mau from int_activity_days group by 1
)
select
    m.month,
    m.mau,
    avg(d.dau) as average_dau,
    round(avg(d.dau) / m.mau, 3) as stickiness
from monthly m
join daily d on date_trunc('month', d.event_date) = m.month
group by m.month, m.mau
