select
    id as customer_id,
    lower(trim(email)) as email,
    split_part(lower(trim(email)), '@', 1) as local_part,
    split_part(lower(trim(email)), '@', 2) as domain,
    position('@' in email) as at_position,
    email ~* '^\s*[a-z0-9+.]+@[a-z.]+$' as is_valid,
    regexp_replace(lower(trim(email)), '\+[^@]*@', '@') as canonical_email
from raw_customers
where email is not null
