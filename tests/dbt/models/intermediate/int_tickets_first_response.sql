select
    t.ticket_id,
    t.customer_id,
    t.opened_at,
    (
        select max(o.order_date)
        from stg_orders o
        where o.customer_id = t.customer_id and o.order_date <= t.opened_at::date
    ) as last_order_date,
    (select count(*) from stg_tickets p where p.customer_id = t.customer_id and p.opened_at < t.opened_at) as earlier_tickets
from stg_tickets t
