select
    a.product_name as first_product,
    b.product_name as second_product,
    sum(pairs.times_together) as times_together
from int_product_pairs pairs
join stg_products a on a.product_id = pairs.product_a
join stg_products b on b.product_id = pairs.product_b
group by 1, 2
