select product_id, order_id, line_no, unit_price,
    unit_price - lag(unit_price) over (partition by product_id order by order_id, line_no) as change,
    round(100 * (unit_price / nullif(lag(unit_price) over (partition by product_id order by order_id, line_no), 0) - 1), 2) as change_percent
from stg_order_items
