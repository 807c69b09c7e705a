select k.key, count(*) as rows
from raw_events e
cross join lateral jsonb_object_keys(e.properties) as k(key)
group by k.key
