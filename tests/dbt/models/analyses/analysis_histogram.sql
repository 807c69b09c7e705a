select
    width_bucket(net_amount, 0, 1000, 10) as bucket,
    count(*) as orders,
    repeat('#', count(*)::int) as bar
from int_orders_joined
group by 1
