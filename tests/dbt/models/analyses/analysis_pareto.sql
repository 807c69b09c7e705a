with ordered as (
    select customer_id, lifetime_value,
        sum(lifetime_value) over (order by lifetime_value desc, customer_id rows between unbounded preceding and current row) as running,
        sum(lifetime_value) over () as total
    from int_customer_orders
    where lifetime_value > 0
)
select count(*) filter (where running <= 0.8 * total) as customers_for_80_percent, count(*) as customers
from ordered
