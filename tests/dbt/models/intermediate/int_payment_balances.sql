select
    o.order_id,
    i.net_amount,
    p.paid,
    coalesce(i.net_amount, 0) - coalesce(p.paid, 0) as outstanding,
    case when coalesce(p.paid, 0) >= coalesce(i.net_amount, 0) then 'paid' else 'open' end as state
from stg_orders as o
left join (select order_id, sum(net_amount) as net_amount from stg_order_items group by 1) as i on i.order_id = o.order_id
left join (select order_id, sum(amount) as paid from stg_payments where status = 'success' group by 1) as p on p.order_id = o.order_id
