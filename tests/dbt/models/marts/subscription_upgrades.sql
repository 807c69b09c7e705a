select
    old.plan_name as from_plan,
    p.plan_name as to_plan,
    count(*) as times
from subscription_changes ch
join stg_plans old on old.plan_name = ch.previous_plan
join stg_plans p on p.plan_name = ch.plan_name
where p.tier > old.tier
group by old.plan_name, p.plan_name
