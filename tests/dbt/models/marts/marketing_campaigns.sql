select
    c.source,
    c.campaign,
    c.customers,
    coalesce(r.revenue, 0) as revenue,
    round(coalesce(r.revenue, 0) / c.customers, 2) as revenue_per_customer
from int_campaigns c
left join (
    select
        coalesce(a.utm_source_clean, 'direct') as source,
        coalesce(a.utm_campaign, '(none)') as campaign,
        sum(o.lifetime_value) as revenue
    from stg_customers__attributes a
    join int_customer_orders o on o.customer_id = a.customer_id
    group by 1, 2
) r on r.source = c.source and r.campaign = c.campaign
