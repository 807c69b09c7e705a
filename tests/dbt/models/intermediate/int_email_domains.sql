select
    domain,
    count(*) as customers,
    round(100.0 * count(*) / sum(count(*)) over (), 2) as percent
from stg_customers__emails
group by domain
