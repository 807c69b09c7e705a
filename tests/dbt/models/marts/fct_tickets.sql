select
    t.ticket_id,
    t.customer_id,
    r.region,
    t.priority,
    t.opened_at,
    t.closed_at - t.opened_at < interval '3 days' as is_within_sla,
    f.earlier_tickets,
    f.last_order_date
from stg_tickets t
left join int_customers_with_region r using (customer_id)
left join int_tickets_first_response f on f.ticket_id = t.ticket_id
