select
    d.date_day,
    count(distinct e.customer_id) as daily_actives,
    count(distinct w.customer_id) as weekly_actives
from base_days d
left join int_activity_days e on e.event_date = d.date_day
left join int_activity_days w on w.event_date between d.date_day - 6 and d.date_day
where d.date_day < date '2023-03-01'
group by d.date_day
