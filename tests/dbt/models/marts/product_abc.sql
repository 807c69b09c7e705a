with cumulative as (
    select
        product_id,
        revenue,
        sum(revenue) over (order by revenue desc, product_id) / nullif(sum(revenue) over (), 0) as share
    from int_product_sales
    where revenue is not null
)
select product_id, revenue, case when share <= 0.7 then 'A' when share <= 0.9 then 'B' else 'C' end as class
from cumulative
