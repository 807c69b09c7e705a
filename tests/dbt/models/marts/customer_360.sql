select
    c.customer_id,
    (select count(*) from stg_orders o where o.customer_id = c.customer_id) as orders,
    (select coalesce(sum(p.amount), 0) from stg_payments p join stg_orders o on o.order_id = p.order_id where o.customer_id = c.customer_id and p.status = 'success') as paid,
    (select max(e.occurred_at) from stg_events e where e.customer_id = c.customer_id) as last_event_at,
    (select count(*) from stg_tickets t where t.customer_id = c.customer_id and t.closed_at is null) as open_tickets,
    (select string_agg(distinct s.plan_name, ', ' order by s.plan_name) from stg_subscriptions s where s.customer_id = c.customer_id) as plans
from stg_customers c
