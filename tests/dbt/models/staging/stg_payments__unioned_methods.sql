with card as (
    select id, amount_cents, 'card' as kind from raw_payments where method = 'credit_card'
),
rest as (
    select id, amount_cents, 'rest' as kind from raw_payments where method <> 'credit_card'
)
select * from card
union all
select * from rest
