select
    coalesce(card_brand, 'unknown') as brand,
    payment_method,
    count(*) as payments,
    sum(coalesce(fee, 0)) as fees
from stg_payments
group by 1, 2
