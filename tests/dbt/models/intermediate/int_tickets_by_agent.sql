select
    coalesce(agent, 'nobody') as agent,
    priority,
    count(*) as tickets,
    count(closed_at) as closed,
    avg(satisfaction) as csat,
    avg(extract(epoch from (closed_at - opened_at)) / 3600) as hours_open
from stg_tickets
group by coalesce(agent, 'nobody'), priority
