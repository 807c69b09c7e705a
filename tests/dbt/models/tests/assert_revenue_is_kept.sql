select abs(a.total - b.total) as difference
from (select sum(net_amount) as total from stg_order_items) a,
     (select sum(revenue) as total from int_product_sales) b
where a.total is distinct from b.total
