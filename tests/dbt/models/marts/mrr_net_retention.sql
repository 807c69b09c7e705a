with base as (
    select
        month_start,
        sum(previous_mrr) as opening,
        sum(case when previous_mrr > 0 then mrr else 0 end) as retained
    from int_customer_mrr_spined
    group by month_start
)
select month_start, opening, retained, round(100 * retained / nullif(opening, 0), 1) as net_retention
from base
where opening > 0
