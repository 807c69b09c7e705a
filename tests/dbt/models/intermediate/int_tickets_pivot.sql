select
    agent,
    sum(case priority when 'urgent' then 1 else 0 end) as urgent,
    sum(case priority when 'high' then 1 else 0 end) as high,
    sum(case priority when 'normal' then 1 else 0 end) as normal,
    sum((priority = 'unset')::int) as unset
from stg_tickets
where agent is not null
group by agent
order by agent
