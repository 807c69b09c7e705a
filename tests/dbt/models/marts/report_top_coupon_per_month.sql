with counted as (
    select
        date_trunc('month', order_date)::date as month,
        coupon_code,
        count(*) as uses
    from stg_orders
    where coupon_code is not null
    group by 1, 2
)
select distinct on (month) month, coupon_code, uses
from counted
order by month, uses desc, coupon_code
