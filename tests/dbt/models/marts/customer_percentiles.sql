select
    customer_id,
    lifetime_value,
    ntile(10) over (order by lifetime_value desc nulls last, customer_id) as decile,
    lifetime_value >= (select percentile_cont(0.9) within group (order by lifetime_value) from int_customer_orders) as is_top_decile
from int_customer_orders
