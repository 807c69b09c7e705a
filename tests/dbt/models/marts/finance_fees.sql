select
    brand,
    sum(payments) as payments,
    sum(fees) as fees,
    sum(fees) / nullif(sum(sum(fees)) over (), 0) as share
from int_payments_by_brand
group by brand
