with everything as (
    select 'customer' as kind, customer_id::text as key, lifetime_value as value from int_customer_orders
    union all
    select 'product', product_id::text, revenue from int_product_sales
)
select kind, key, value
from (select *, row_number() over (partition by kind order by value desc nulls last, key) as n from everything) t
where n <= 5
