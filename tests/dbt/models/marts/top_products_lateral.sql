select c.category, t.product_id, t.revenue
from (select distinct category from stg_products where category is not null) c
cross join lateral (
    select p.product_id, p.revenue
    from int_product_sales p
    where p.category = c.category
    order by p.revenue desc nulls last, p.product_id
    limit 2
) t
