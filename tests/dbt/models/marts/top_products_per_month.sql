select *
from (
    select
        date_trunc('month', order_date)::date as order_month,
        product_id,
        sum(quantity) as units,
        rank() over (
            partition by date_trunc('month', order_date)
            order by sum(quantity) desc, product_id
        ) as product_rank
    from fct_order_items
    group by 1, 2, date_trunc('month', order_date)
) ranked
where product_rank <= 3
