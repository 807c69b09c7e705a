select
    coalesce(k.campaign, '(no coupon)') as campaign,
    count(*) as orders,
    sum(o.net_amount) as revenue,
    avg(k.percent_or_zero) as average_percent
from stg_orders__coupons k
join int_orders_joined o on o.order_id = k.order_id
group by 1
