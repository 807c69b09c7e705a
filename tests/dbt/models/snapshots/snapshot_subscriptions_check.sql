with current_rows as (
    select subscription_id, plan_name, monthly_amount, md5(concat_ws('|', plan_name, monthly_amount)) as row_hash
    from stg_subscriptions
),
listed as (
    select s.subscription_id, md5(concat_ws('|', s.plan_name, p.list_price)) as row_hash
    from stg_subscriptions s join stg_plans p on p.plan_name = s.plan_name
)
select c.subscription_id, c.row_hash <> l.row_hash as has_changed
from current_rows c
join listed l using (subscription_id)
