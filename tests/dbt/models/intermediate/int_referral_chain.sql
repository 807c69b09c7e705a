select
    a.customer_id,
    b.customer_id as level_1,
    c.customer_id as level_2,
    case when c.customer_id is not null then 2 when b.customer_id is not null then 1 else 0 end as depth
from stg_customers a
left join stg_customers b on a.referred_by_customer_id = b.customer_id
left join stg_customers c on b.referred_by_customer_id = c.customer_id
