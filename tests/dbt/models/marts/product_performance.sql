select
    s.product_id,
    s.product_name,
    s.units,
    s.revenue,
    s.margin,
    round(s.margin / nullif(s.revenue, 0) * 100, 1) as margin_percent,
    m.median_price,
    sum(s.revenue) over (order by s.revenue desc nulls last, s.product_id) as cumulative_revenue,
    coalesce(t.tag_count, 0) as tags
from int_product_sales s
left join int_median_prices m on m.product_id = s.product_id
left join stg_products__flags t on t.product_id = s.product_id
