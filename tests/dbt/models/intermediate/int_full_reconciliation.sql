select
    coalesce(i.order_id, p.order_id) as order_id,
    i.net_amount,
    p.total_amount,
    case
        when i.order_id is null then 'only paid'
        when p.order_id is null then 'only sold'
        when i.net_amount = p.total_amount then 'equal'
        else 'different'
    end as outcome
from int_order_items_summed i
full outer join int_order_payments_pivoted p on p.order_id = i.order_id
