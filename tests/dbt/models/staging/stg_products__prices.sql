select
    id as product_id,
    price_cents / 100 as price_whole,
    price_cents % 100 as price_rest,
    price_cents / 100.0 as price,
    (price_cents / 100.0)::numeric(10, 2) - cost as margin,
    round(100.0 * (price_cents / 100.0 - cost) / nullif(price_cents / 100.0, 0), 1) as margin_percent,
    cost is null as is_cost_missing
from raw_products
