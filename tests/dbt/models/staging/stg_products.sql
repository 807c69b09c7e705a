with source as (
    select * from raw_products
),

renamed as (
    select
        id                              as product_id,
        sku,
        name                            as product_name,
        initcap(trim(category))         as category,
        (price_cents / 100.0)::numeric(10, 2) as list_price,
        cost                            as unit_cost,
        is_active,
        launched_on,
        string_to_array(nullif(tags, ''), ',') as tags
    from source
)

select * from renamed
