select order_month as month, 'orders' as metric, orders::numeric as value from monthly_revenue
union all
select order_month, 'customers', customers::numeric from monthly_revenue
union all
select order_month, 'revenue', revenue from monthly_revenue
