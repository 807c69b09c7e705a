select *
from raw_tickets
order by opened_at desc, id
limit 25
