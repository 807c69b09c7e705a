select distinct on (customer_id)
    customer_id,
    subscription_id,
    plan_name,
    monthly_amount
from stg_subscriptions
order by customer_id, valid_from desc, subscription_id desc
