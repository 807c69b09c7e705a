select
    agent,
    tickets,
    csat,
    dense_rank() over (order by tickets desc) as by_tickets,
    rank() over (order by csat desc nulls last) as by_csat
from (
    select agent, sum(tickets) as tickets, round(avg(csat), 4) as csat
    from int_tickets_by_agent
    group by agent
) agents
