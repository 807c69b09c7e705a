select
    date_trunc('week', date_day)::date as week,
    max(open_tickets) as peak,
    avg(open_tickets) as average
from int_ticket_backlog
group by 1
