select
    id as ticket_id,
    customer_id,
    subject,
    case upper(priority)
        when 'P1' then 'urgent'
        when 'HIGH' then 'high'
        when 'NORMAL' then 'normal'
        when 'LOW' then 'low'
        else 'unset'
    end as priority,
    opened_at,
    case when closed_at >= opened_at then closed_at end as closed_at,
    satisfaction::smallint as satisfaction,
    lower(agent) as agent
from raw_tickets
