select
    count(*) as orders,
    avg(net_amount) as mean_amount,
    percentile_cont(array[0.25, 0.5, 0.75]) within group (order by net_amount) as quartiles,
    min(net_amount) as smallest,
    max(net_amount) as largest,
    round(stddev_pop(net_amount), 6) as deviation,
    corr(item_count::double precision, net_amount::double precision) as correlation
from int_orders_joined
