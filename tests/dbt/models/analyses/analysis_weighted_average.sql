select
    category,
    sum(list_price * units) / nullif(sum(units), 0) as weighted_price,
    sum(units) filter (where list_price > 50) as expensive_units
from (
    select p.category, p.list_price, s.units
    from stg_products p
    join int_product_sales s on s.product_id = p.product_id
) priced
group by category
