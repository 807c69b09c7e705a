select order_id, max(line_no) as highest, count(*) as lines
from stg_order_items
group by order_id
having max(line_no) <> count(*)
