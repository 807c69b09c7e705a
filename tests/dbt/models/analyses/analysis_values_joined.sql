with thresholds (priority, hours) as (values ('urgent', 4), ('high', 24), ('normal', 72), ('low', 168))
select
    t.ticket_id,
    th.hours,
    t.closed_at <= t.opened_at + th.hours * interval '1 hour' as is_within
from stg_tickets t
join thresholds th on th.priority = t.priority
