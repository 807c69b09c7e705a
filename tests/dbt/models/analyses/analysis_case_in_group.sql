select
    case when extract(month from order_date) <= 6 then 'H1' else 'H2' end as half,
    case when coupon_code is null then 'full price' else 'coupon' end as pricing,
    count(*) as orders,
    count(distinct customer_id) as customers
from stg_orders
group by
    case when extract(month from order_date) <= 6 then 'H1' else 'H2' end,
    case when coupon_code is null then 'full price' else 'coupon' end
