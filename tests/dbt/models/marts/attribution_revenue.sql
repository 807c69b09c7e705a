select
    coalesce(t.page_path, '(none)') as landing_page,
    count(*) as orders,
    sum(o.net_amount) as revenue
from int_attribution_first_touch t
join int_orders_joined o on o.order_id = t.order_id
group by 1
