with rawdata as (

    select generate_series(0, 17) as n

)

select
    (date '2023-01-01' + n * interval '1 month')::date as month_start,
    (date '2023-01-01' + (n + 1) * interval '1 month' - interval '1 day')::date as month_end
from rawdata
