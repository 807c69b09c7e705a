select
    id as payment_id,
    coalesce(details #>> '{card,brand}', 'none') as brand,
    lpad(details #>> '{card,last4}', 8, '*') as masked,
    cast(details ->> 'fee' as double precision) as fee,
    details -> 'fee' as raw_fee,
    jsonb_typeof(details -> 'card') as card_type
from raw_payments
where method = 'credit_card'
  and details is not null
