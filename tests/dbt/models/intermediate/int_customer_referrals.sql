select
    referrer.customer_id as referrer_id,
    count(referred.customer_id) as referral_count,
    string_agg(referred.customer_id::text, ', ' order by referred.customer_id) as referral_ids,
    array_agg(referred.customer_id order by referred.created_at desc, referred.customer_id) as newest_first
from stg_customers referrer
inner join stg_customers referred
    on referred.referred_by_customer_id = referrer.customer_id
    and referred.customer_id <> referrer.customer_id
group by referrer.customer_id
