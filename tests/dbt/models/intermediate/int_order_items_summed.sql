select
    order_id,
    count(*) as line_count,
    sum(quantity) as item_count,
    sum(gross_amount) as gross_amount,
    sum(net_amount) as net_amount,
    avg(discount_rate) as average_discount,
    max(unit_price) as highest_price,
    min(unit_price) as lowest_price
from stg_order_items
group by order_id
