with ranked as (
    select
        r.region,
        o.customer_id,
        o.lifetime_value,
        row_number() over (partition by r.region order by o.lifetime_value desc nulls last, o.customer_id) as position
    from int_customer_orders o
    join int_customers_with_region r using (customer_id)
)
select region, customer_id, lifetime_value
from ranked
where position <= 3
