select line_count, count(*) as orders, avg(net_amount) as average, min(order_id) as example
from int_order_items_summed
group by line_count
order by line_count
