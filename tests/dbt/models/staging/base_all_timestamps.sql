select 'orders' as relation, ordered_at as happened_at from raw_orders
union all
select 'events' as relation, occurred_at from raw_events
union all
select 'customers', created_at from raw_customers
