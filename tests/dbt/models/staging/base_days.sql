select day::date as date_day
from generate_series('2023-01-01'::date, '2024-03-31'::date, interval '1 day') as day
