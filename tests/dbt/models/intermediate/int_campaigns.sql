select
    coalesce(utm_source_clean, 'direct') as source,
    coalesce(utm_campaign, '(none)') as campaign,
    count(*) as customers,
    count(*) filter (where is_pro) as pro_customers,
    avg(score) as average_score
from stg_customers__attributes
group by 1, 2
