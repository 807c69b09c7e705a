with spine as (
    select d.date_day, max(o.status) as status
    from base_days d
    left join stg_orders o on o.order_date = d.date_day
    group by d.date_day
),
grouped as (
    select date_day, status, count(status) over (order by date_day) as grp
    from spine
)
select date_day, first_value(status) over (partition by grp order by date_day) as filled_status
from grouped
