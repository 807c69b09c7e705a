select
    customer_id,
    r || '' || f || '' || m as rfm,
    case
        when r = 3 and f = 3 then 'champion'
        when r = 1 and f >= 2 then 'at risk'
        when r = 1 then 'lost'
        else 'regular'
    end as segment,
    (r + f + m) / 3.0 as score
from int_rfm_scores
