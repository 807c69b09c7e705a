select id as payment_id, order_id, amount_cents / 100.0 as amount
from raw_payments
where status = 'success' and amount_cents <> 0
