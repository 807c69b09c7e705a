select
    date_trunc('quarter', opened_at)::date as quarter,
    (100.0 * (count(*) filter (where satisfaction >= 4) - count(*) filter (where satisfaction <= 2)) / nullif(count(satisfaction), 0))::numeric(6, 1) as nps
from stg_tickets
group by 1
