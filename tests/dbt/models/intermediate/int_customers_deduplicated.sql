with ranked as (
    select
        customer_id,
        email,
        created_at,
        row_number() over (partition by email order by created_at, customer_id) as occurrence
    from stg_customers
    where email is not null
)

select * from ranked where occurrence = 1
