select
    id as ticket_id,
    satisfaction,
    case
        when satisfaction >= 4 then 'promoter'
        when satisfaction = 3 then 'passive'
        when satisfaction <= 2 then 'detractor'
        else 'no answer'
    end as segment,
    coalesce(satisfaction, 0) * 20 as score,
    num_nulls(satisfaction, closed_at) as missing_count,
    satisfaction::numeric / 5 as ratio
from raw_tickets
