with months as (
    select order_month, revenue from monthly_revenue
)
select
    this.order_month,
    this.revenue,
    last.revenue as last_year,
    this.revenue - coalesce(last.revenue, 0) as change
from months this
left join months last on last.order_month = (this.order_month - interval '1 year')::date
