select
    *,
    md5(coalesce(cast(order_id as varchar), '') || '|' || coalesce(cast(ordered_at::date as varchar), '')) as dbt_scd_id,
    ordered_at as dbt_updated_at,
    ordered_at as dbt_valid_from,
    nullif(ordered_at, ordered_at) as dbt_valid_to
from stg_orders
