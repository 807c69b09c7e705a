select
    id as product_id,
    split_part(name, ',', 1) as base_name,
    trim(split_part(name, ',', 2)) as variant,
    regexp_replace(lower(name), '[^a-z0-9]+', '-', 'g') as slug,
    translate(name, '(),', '') as plain_name,
    repeat('*', length(category)) as stars,
    ascii(name) as first_code,
    btrim(category) = category as is_trimmed
from raw_products
