select
    product_id,
    percentile_cont(0.5) within group (order by unit_price) as median_price,
    percentile_disc(0.9) within group (order by unit_price) as p90_price,
    mode() within group (order by quantity) as usual_quantity,
    stddev_samp(unit_price) as price_deviation,
    variance(unit_price::double precision) as price_variance
from stg_order_items
group by product_id
