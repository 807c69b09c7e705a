with marked as (
    select
        order_id,
        order_date,
        status,
        row_number() over (order by order_date, order_id)
            - row_number() over (partition by status order by order_date, order_id) as grp
    from stg_orders
)
select status, min(order_date) as from_date, max(order_date) as to_date, count(*) as orders
from marked
group by status, grp
having count(*) > 1
