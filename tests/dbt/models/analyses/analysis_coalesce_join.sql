select
    coalesce(o.month, t.month) as month,
    coalesce(o.orders, 0) as orders,
    coalesce(t.tickets, 0) as tickets
from (select date_trunc('month', order_date)::date as month, count(*) as orders from stg_orders group by 1) o
full outer join (select date_trunc('month', opened_at)::date as month, count(*) as tickets from stg_tickets group by 1) t
    on t.month = o.month
