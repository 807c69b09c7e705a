select c.customer_id
from stg_customers c
where exists (select 1 from stg_orders o where o.customer_id = c.customer_id)
  and exists (select 1 from stg_events e where e.customer_id = c.customer_id and e.event_type = 'checkout')
  and not exists (select 1 from stg_tickets t where t.customer_id = c.customer_id and t.closed_at is null)
