select
    id as product_id,
    is_active,
    not is_active as is_retired,
    is_active::int as active_flag,
    (is_active and cost is not null)::text as usable,
    category is null or category = '' as is_uncategorised,
    'sale' = any(string_to_array(tags, ',')) as is_on_sale,
    cardinality(string_to_array(tags, ',')) as tag_count,
    array_to_string(string_to_array(tags, ','), '|') as tags_piped
from raw_products
