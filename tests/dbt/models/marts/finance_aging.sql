select
    case
        when date '2024-03-01' - order_date <= 30 then '0-30'
        when date '2024-03-01' - order_date <= 60 then '31-60'
        when date '2024-03-01' - order_date <= 90 then '61-90'
        else 'over 90'
    end as age,
    count(*) as orders,
    sum(balance) as balance
from int_orders_joined
where balance > 0
group by 1
