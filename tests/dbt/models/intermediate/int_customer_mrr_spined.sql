with bounds as (
    select customer_id, min(month_start) as first_month from int_customer_mrr group by customer_id
)

select
    b.customer_id,
    m.month_start,
    coalesce(c.mrr, 0) as mrr,
    lag(coalesce(c.mrr, 0)) over (partition by b.customer_id order by m.month_start) as previous_mrr
from bounds b
join base_months m on m.month_start >= b.first_month
left join int_customer_mrr c on c.customer_id = b.customer_id and c.month_start = m.month_start
