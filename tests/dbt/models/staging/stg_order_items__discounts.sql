select
    order_id,
    line_no,
    discount,
    coalesce(discount, 0.0) as discount_rate,
    round((unit_price * quantity * (1 - coalesce(discount, 0)))::numeric, 2) as net_amount,
    greatest(coalesce(discount, 0), 0.1) as at_least_ten,
    least(unit_price, 50) as capped_price,
    width_bucket(unit_price, 0, 100, 5) as price_bucket,
    ceil(unit_price) as price_up,
    floor(unit_price) as price_down,
    trunc(unit_price, 1) as price_tenths,
    mod(quantity, 2) = 0 as is_even,
    sign(quantity - 2) as direction,
    abs(quantity - 3) as distance
from raw_order_items
