select
    month_start,
    coalesce(sum(case when region = 'EMEA' then mrr end), 0) as emea,
    coalesce(sum(case when region = 'AMER' then mrr end), 0) as amer,
    coalesce(sum(case when region = 'Other' then mrr end), 0) as other
from int_customer_mrr m
join int_customers_with_region r on r.customer_id = m.customer_id
group by month_start
