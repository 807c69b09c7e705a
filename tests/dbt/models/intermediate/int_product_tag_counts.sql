select tag, count(*) as products, string_agg(distinct product_id::text, ',') as ids
from stg_products__tags
group by tag
