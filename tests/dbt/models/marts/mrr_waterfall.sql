select month_start, change_category, sum(mrr_change) as amount, count(*) as customers
from int_mrr_changes
where change_category is not null
group by grouping sets ((month_start, change_category), (month_start), ())
