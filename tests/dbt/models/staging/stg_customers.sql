with source as (

    select * from raw_customers

),

renamed as (

    select
        id as customer_id,
        nullif(trim(first_name), '') as first_name,
        nullif(trim(last_name), '') as last_name,
        lower(trim(email)) as email,
        upper(country) as country_code,
        created_at,
        coalesce(opted_in, false) as is_opted_in,
        referred_by as referred_by_customer_id,
        attributes

    from source

)

select * from renamed
