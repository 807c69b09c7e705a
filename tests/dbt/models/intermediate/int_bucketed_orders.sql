select
    case
        when net_amount < 50 then '0-50'
        when net_amount < 200 then '50-200'
        when net_amount < 500 then '200-500'
        else '500+'
    end as bucket,
    count(*) as orders,
    sum(net_amount) as amount
from int_orders_joined
group by 1
