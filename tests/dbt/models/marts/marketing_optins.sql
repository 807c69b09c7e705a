select
    r.region,
    count(*) filter (where c.is_opted_in) as opted_in,
    count(*) as customers,
    round(avg(case when c.is_opted_in then 1.0 else 0.0 end), 4) as rate
from stg_customers c
join int_customers_with_region r on r.customer_id = c.customer_id
group by r.region
