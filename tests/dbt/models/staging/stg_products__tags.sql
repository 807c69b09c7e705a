select
    id as product_id,
    unnest(string_to_array(tags, ',')) as tag
from raw_products
where tags <> ''
