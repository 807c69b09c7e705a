select
    coalesce(region, 'Unknown') as region,
    priority,
    count(*) as tickets,
    count(*) filter (where is_within_sla) as within_sla,
    min(opened_at) as first_opened_at
from fct_tickets
group by 1, 2
having count(*) > 0
