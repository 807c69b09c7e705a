select 'customer' as source, id::text as source_id, lower(trim(email)) as contact from raw_customers
union all
select 'ticket', id::text, agent from raw_tickets
union all
select 'event', event_id::text, user_id::varchar from raw_events where event_type = 'signup'
