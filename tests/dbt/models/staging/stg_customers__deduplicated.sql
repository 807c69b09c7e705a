with ranked as (

    select
        *,
        row_number() over (
            partition by lower(trim(email))
            order by created_at desc, id desc
        ) as row_num
    from raw_customers
    where email is not null

)

select id as customer_id, lower(trim(email)) as email, created_at
from ranked
where row_num = 1
