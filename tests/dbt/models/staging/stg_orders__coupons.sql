select
    id as order_id,
    upper(coupon) as coupon,
    substring(coupon from '[0-9]+')::int as coupon_percent,
    regexp_replace(upper(coupon), '[^A-Z]', '', 'g') as campaign,
    coupon is not null as has_coupon,
    coalesce(nullif(regexp_replace(coupon, '\D', '', 'g'), ''), '0')::int as percent_or_zero,
    case
        when coupon ilike 'spring%' then 'spring'
        when coupon ilike 'fall%' then 'fall'
        when coupon is null then 'none'
        else 'other'
    end as season
from raw_orders
