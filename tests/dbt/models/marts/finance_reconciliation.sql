select
    outcome,
    count(*) as orders,
    sum(coalesce(net_amount, 0)) - sum(coalesce(total_amount, 0)) as difference
from int_full_reconciliation
group by outcome
