select
    event_type,
    sum((device = 'ios')::int) as ios,
    sum((device = 'android')::int) as android,
    sum((device = 'web')::int) as web,
    round(avg((device = 'web')::int), 3) as web_share
from stg_events
where device is not null
group by event_type
