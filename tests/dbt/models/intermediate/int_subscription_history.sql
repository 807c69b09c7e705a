select
    subscription_id,
    customer_id,
    plan_name,
    valid_from,
    coalesce(valid_to, lead(valid_from) over (partition by customer_id order by valid_from, subscription_id), date '9999-12-31') as valid_to,
    valid_to is null and lead(valid_from) over (partition by customer_id order by valid_from, subscription_id) is null as is_current
from stg_subscriptions
