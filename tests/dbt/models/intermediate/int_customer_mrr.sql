select
    customer_id,
    month_start,
    sum(monthly_amount) as mrr
from int_subscription_months
group by customer_id, month_start
