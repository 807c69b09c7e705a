select distinct upper(country) as country_code
from raw_customers
where country is not null
