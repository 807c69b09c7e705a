select
    c.id as customer_id,
    t.tag
from raw_customers as c
cross join lateral jsonb_array_elements_text(c.attributes -> 'tags') as t(tag)
where c.attributes is not null
