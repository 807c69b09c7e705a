with source as (

    select * from raw_payments

),

renamed as (

    select
        id as payment_id,
        order_id,
        method as payment_method,
        status,

        -- amount is stored in cents, convert it to dollars
        amount_cents / 100 as whole_amount,
        (amount_cents::numeric / 100)::numeric(16, 2) as amount,
        paid_at,
        details -> 'card' ->> 'brand' as card_brand,
        details -> 'card' ->> 'last4' as card_last4,
        (details ->> 'fee')::numeric(8, 2) as fee

    from source

)

select * from renamed
