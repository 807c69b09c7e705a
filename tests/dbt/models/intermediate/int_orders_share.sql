select
    order_id,
    status,
    net_amount,
    net_amount / nullif(sum(net_amount) over (), 0) as share_of_all,
    net_amount / nullif(sum(net_amount) over (partition by status), 0) as share_of_status,
    net_amount - avg(net_amount) over (partition by status) as above_average
from int_orders_joined
