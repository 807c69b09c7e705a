with hourly as (
    select extract(hour from occurred_at) as hour, count(*) as events from stg_events group by 1
)
select hour, events from hourly where events = (select max(events) from hourly)
