select
    customer_id,
    bool_or(tag = 'vip') as is_vip,
    bool_or(tag = 'risk') as is_risk,
    count(*) as tags,
    string_agg(tag, '+' order by tag) as tag_list
from stg_customers__tags
group by customer_id
