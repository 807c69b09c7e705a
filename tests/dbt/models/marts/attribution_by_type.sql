select event_type, round(sum(credit), 6) as credit, count(distinct order_id) as orders
from int_attribution_linear
group by event_type
