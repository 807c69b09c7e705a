select
    c.customer_id,
    c.email,
    coalesce(r.country_name, 'Unknown') as country_name,
    coalesce(r.region, 'Other') as region,
    r.tax_rate
from stg_customers as c
left join stg_countries as r using (country_code)
