select s.subscription_id, s.monthly_amount, p.list_price, p.tier,
    s.monthly_amount - p.list_price * s.seats as over_list
from stg_subscriptions s
natural join stg_plans p
