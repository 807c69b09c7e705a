select
    c.customer_id,
    c.customer_id in (select customer_id from stg_tickets where priority = 'urgent') as has_urgent_ticket,
    exists (select 1 from stg_subscriptions s where s.customer_id = c.customer_id and s.valid_to is null) as is_subscriber,
    not exists (select 1 from stg_orders o where o.customer_id = c.customer_id) as never_ordered
from stg_customers c
