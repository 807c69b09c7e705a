select a.subscription_id, b.subscription_id as other_id, a.customer_id
from stg_subscriptions a
join stg_subscriptions b
    on a.customer_id = b.customer_id
    and a.subscription_id < b.subscription_id
where (a.valid_from, coalesce(a.valid_to, '9999-12-31')) overlaps (b.valid_from, coalesce(b.valid_to, '9999-12-31'))
