with monthly as (
    select * from monthly_revenue
),
lagged as (
    select
        order_month,
        revenue,
        lag(revenue) over (order by order_month) as previous_revenue
    from monthly
)
select
    order_month,
    revenue,
    previous_revenue,
    case when previous_revenue > 0 then round((revenue / previous_revenue - 1) * 100, 2) end as growth_percent
from lagged
