with orders as (
    select customer_id, ordered_at as touched_at, 'order' as kind, order_id::text as reference from stg_orders
),
events as (
    select customer_id, occurred_at, event_type, event_id::text from stg_events
),
tickets as (
    select customer_id, opened_at::timestamptz, 'ticket', ticket_id::text from stg_tickets
),
unioned as (
    select * from orders
    union all
    select * from events
    union all
    select * from tickets
)
select
    md5(concat_ws('-', kind, reference)) as touchpoint_id,
    *
from unioned
where customer_id is not null
