select
    coalesce(category, '(none)') as category,
    sum(revenue) as revenue,
    round(100.0 * sum(revenue) / sum(sum(revenue)) over (), 2) as share
from int_product_sales
group by coalesce(category, '(none)')
