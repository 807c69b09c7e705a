select order_id, line_no, product_id
from stg_order_items
where (order_id, product_id) in (
    select i.order_id, i.product_id
    from stg_order_items i
    group by i.order_id, i.product_id
    having count(*) > 1
)
