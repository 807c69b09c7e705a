select
    coalesce(agent, 'total') as agent,
    sum(tickets) as tickets,
    sum(closed) as closed,
    round(100.0 * sum(closed) / sum(tickets), 1) as closed_percent
from int_tickets_by_agent
group by rollup (agent)
