select p.customer_id, v.metric, v.value
from int_events_pivoted p
cross join lateral (values ('page_views', p.page_views), ('carts', p.carts), ('checkouts', p.checkouts)) as v(metric, value)
where v.value > 0
