select
    order_id,
    net_amount,
    rank() over (order by net_amount desc) as amount_rank,
    dense_rank() over (order by net_amount desc) as amount_dense_rank,
    ntile(4) over (order by net_amount, order_id) as quartile,
    percent_rank() over (order by net_amount) as percentile,
    cume_dist() over (order by net_amount) as cumulative
from int_orders_joined
