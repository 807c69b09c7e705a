select
    md5(cast(coalesce(cast(id as TEXT), '_dbt_utils_surrogate_key_null_') || '-' || coalesce(cast(customer_id as TEXT), '_dbt_utils_surrogate_key_null_') as TEXT)) as order_key,
    md5(concat_ws('|', status, coupon, shipping::text)) as row_hash,
    md5(row(id, status)::text) is not null as has_hash,
    id as order_id
from raw_orders
