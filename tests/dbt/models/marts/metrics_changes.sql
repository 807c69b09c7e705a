select
    metric,
    month,
    value,
    value - first_value(value) over (partition by metric order by month) as since_start,
    value / nullif(max(value) over (partition by metric), 0) as of_best
from metrics_long
