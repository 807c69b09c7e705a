select
    d.date_day,
    count(t.ticket_id) as open_tickets
from base_days d
join stg_tickets t
    on t.opened_at::date <= d.date_day
    and (t.closed_at is null or t.closed_at::date > d.date_day)
group by d.date_day
