select priority as value_field, count(*) as n_records
from stg_tickets
group by priority
having priority not in ('urgent', 'high', 'normal', 'low', 'unset')
