with totals as (
    select month_start, sum(mrr) as mrr from int_customer_mrr group by 1
)
select
    month_start,
    mrr,
    lag(mrr) over (order by month_start) as previous_mrr,
    round((mrr - lag(mrr) over (order by month_start)) / nullif(lag(mrr) over (order by month_start), 0) * 100, 2) as growth_percent,
    sum(mrr) over (order by month_start rows between 2 preceding and current row) as trailing_quarter
from totals
