with entries as (
    select order_date as entry_date, 'sale' as kind, net_amount as amount from int_orders_joined where net_amount > 0
    union all
    select paid_at::date, 'payment', -amount from stg_payments where status = 'success' and paid_at is not null
    union all
    select paid_at::date, 'refund', amount from stg_payments where status = 'refunded' and paid_at is not null
)
select
    entry_date,
    sum(amount) filter (where kind = 'sale') as sales,
    sum(amount) filter (where kind = 'payment') as payments,
    sum(amount) filter (where kind = 'refund') as refunds,
    sum(sum(amount)) over (order by entry_date) as balance
from entries
group by entry_date
