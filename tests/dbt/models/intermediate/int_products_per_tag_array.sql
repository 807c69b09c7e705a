select t.tag, array_agg(p.product_name order by p.product_name, p.product_id) as names
from stg_products p
cross join lateral unnest(p.tags) as t(tag)
group by t.tag
