select distinct on (metric) metric, month, value
from metrics_long
order by metric, month desc
