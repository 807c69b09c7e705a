select (date '2023-01-01' + (n || ' month')::interval)::date as month_start
from generate_series(0, 17) as n
