with validation_errors as (
    select order_id, product_id
    from stg_order_items
    group by order_id, product_id
    having count(*) > 1
)
select * from validation_errors
