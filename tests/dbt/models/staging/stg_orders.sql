with source as (

    select * from raw_orders

),

renamed as (

    select
        id as order_id,
        customer_id,
        lower(coalesce(status, 'unknown')) as status,
        order_date,
        ordered_at,
        shipped_at,
        upper(coupon) as coupon_code,
        coalesce(shipping, 0)::numeric(8, 2) as shipping_amount,
        nullif(trim(note), '') as note

    from source

)

select * from renamed
