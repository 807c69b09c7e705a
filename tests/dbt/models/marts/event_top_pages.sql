select page_path, count(*) as views, count(distinct customer_id) as visitors
from stg_events
where event_type = 'page_view' and page_path is not null
group by page_path
order by views desc, page_path
limit 5
