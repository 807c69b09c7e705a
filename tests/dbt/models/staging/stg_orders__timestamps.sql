select
    id as order_id,
    ordered_at,
    ordered_at::date as ordered_date,
    ordered_at at time zone 'America/New_York' as ordered_at_ny,
    date_trunc('hour', ordered_at) as ordered_hour,
    extract(hour from ordered_at)::int as hour_of_day,
    extract(epoch from (shipped_at - ordered_at)) / 3600.0 as hours_to_ship,
    case when shipped_at > ordered_at then date_part('day', shipped_at - ordered_at)::int end as days_to_ship,
    ordered_at + interval '2 days' as promised_at,
    shipped_at > ordered_at + interval '2 days' as is_late
from raw_orders
