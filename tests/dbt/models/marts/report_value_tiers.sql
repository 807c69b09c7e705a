select
    o.customer_id,
    o.lifetime_value,
    t.tier
from int_customer_orders o
join (values (0, 200, 'bronze'), (200, 800, 'silver'), (800, 1000000, 'gold')) as t(low, high, tier)
    on o.lifetime_value >= t.low and o.lifetime_value < t.high
