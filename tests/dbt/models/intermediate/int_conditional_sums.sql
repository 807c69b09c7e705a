select
    customer_id,
    sum(case when status = 'completed' then net_amount end) as completed_amount,
    sum(case when status = 'returned' then net_amount end) as returned_amount,
    coalesce(sum(net_amount) filter (where status not in ('returned', 'cancelled')), 0) as kept_amount,
    count(case when balance > 0 then 1 end) as open_orders,
    round(avg(case when paid_amount > 0 then paid_amount end), 2) as average_paid
from int_orders_joined
group by customer_id
