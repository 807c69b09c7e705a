select
    case when discount_rate = 0 then 'none' when discount_rate < 0.2 then 'small' else 'large' end as discount,
    count(*) as lines,
    avg(quantity)::numeric(8, 3) as average_quantity,
    sum(gross_amount - net_amount) as given_away
from stg_order_items
group by 1
