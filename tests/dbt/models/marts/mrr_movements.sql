select
    month_start,
    sum(mrr_change) filter (where change_category = 'new') as new_mrr,
    sum(mrr_change) filter (where change_category = 'upgrade') as expansion_mrr,
    sum(mrr_change) filter (where change_category = 'downgrade') as contraction_mrr,
    sum(mrr_change) filter (where change_category = 'churn') as churned_mrr,
    sum(mrr_change) filter (where change_category = 'reactivation') as reactivated_mrr,
    sum(mrr) as closing_mrr
from int_mrr_changes
group by month_start
