select
    id as customer_id,
    concat_ws(' ', nullif(trim(first_name), ''), nullif(last_name, '')) as full_name,
    initcap(trim(first_name)) as first_name,
    left(trim(first_name), 1) || '.' as initial,
    length(last_name) as last_name_length,
    upper(last_name) as sort_name,
    replace(first_name, '''', '') as plain_first_name,
    coalesce(first_name, last_name, 'Anonymous') as display_name
from raw_customers
