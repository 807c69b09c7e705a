select
    customer_id,
    month_start,
    mrr,
    mrr - coalesce(previous_mrr, 0) as mrr_change,
    case
        when previous_mrr is null and mrr > 0 then 'new'
        when previous_mrr = 0 and mrr > 0 then 'reactivation'
        when previous_mrr > 0 and mrr = 0 then 'churn'
        when mrr > previous_mrr then 'upgrade'
        when mrr < previous_mrr then 'downgrade'
    end as change_category
from int_customer_mrr_spined
