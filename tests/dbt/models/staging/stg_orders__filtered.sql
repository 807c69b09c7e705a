select *
from raw_orders
where order_date between '2023-03-01' and '2023-12-31'
  and (status is null or status not in ('cancelled', 'returned'))
  and not (coupon is not null and shipping is null)
