select
    id as customer_id,
    cast(created_at as date) as created_date,
    cast(created_at as timestamp) as created_timestamp,
    cast(id as numeric(10, 1)) as id_numeric,
    cast(opted_in as text) as opted_in_text,
    (opted_in is true)::int as opted_in_flag,
    opted_in is not false as may_contact,
    id::text || ':' || coalesce(country, '??') as label
from raw_customers
