with orders as (
    select order_date as day, count(*) as orders, sum(net_amount) as revenue from int_orders_joined group by 1
),
tickets as (
    select opened_at::date as day, count(*) as tickets from stg_tickets group by 1
),
events as (
    select event_date as day, sum(events) as events from int_events_daily group by 1
)
select
    d.date_day,
    coalesce(o.orders, 0) as orders,
    coalesce(o.revenue, 0) as revenue,
    coalesce(t.tickets, 0) as tickets,
    coalesce(e.events, 0) as events
from base_days d
left join orders o on o.day = d.date_day
left join tickets t on t.day = d.date_day
left join events e on e.day = d.date_day
