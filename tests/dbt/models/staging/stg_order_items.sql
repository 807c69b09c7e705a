with source as (

    select * from raw_order_items

)

select
    md5(concat_ws('-', order_id::text, line_no::text)) as order_item_id,
    order_id,
    line_no,
    product_id,
    quantity,
    unit_price,
    coalesce(discount, 0) as discount_rate,
    quantity * unit_price as gross_amount,
    round((quantity * unit_price)::numeric * (1 - coalesce(discount, 0))::numeric, 2) as net_amount
from source
