select
    id as payment_id,
    coalesce(paid_at, timestamp '2023-01-01 00:00:00') as paid_at,
    paid_at is null as is_unpaid,
    to_char(paid_at, 'YYYY-MM-DD HH24:MI:SS') as paid_text,
    to_char(amount_cents / 100.0, 'FM999990.00') as amount_text,
    cast(amount_cents as varchar(10)) as cents_text,
    amount_cents::float / 100 as amount_float
from raw_payments
