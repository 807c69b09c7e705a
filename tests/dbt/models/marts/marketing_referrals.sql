select
    r.referrer_id,
    r.referral_count,
    r.referral_ids,
    coalesce(sum(o.lifetime_value), 0) as referred_revenue
from int_customer_referrals r
join stg_customers c on c.referred_by_customer_id = r.referrer_id
left join int_customer_orders o on o.customer_id = c.customer_id
group by r.referrer_id, r.referral_count, r.referral_ids
