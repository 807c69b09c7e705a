select
    id as order_id,
    trim(note) as note,
    char_length(note) as note_length,
    note like '%gift%' as is_gift,
    (regexp_match(note, '#(\d+)'))[1] as first_reference,
    regexp_replace(note, '\d{3}-\d{4}', '***') as redacted,
    strpos(note, 'door') > 0 as leave_at_door,
    rpad(coalesce(trim(note), '-'), 6, '.') as padded,
    reverse(left(note, 4)) as reversed
from raw_orders
where nullif(trim(note), '') is not null
