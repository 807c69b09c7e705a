select
    c.customer_id,
    c.email,
    r.region,
    r.country_name,
    coalesce(o.number_of_orders, 0) as orders,
    coalesce(o.lifetime_value, 0)::numeric(14, 2) as lifetime_value,
    coalesce(e.page_views, 0) as page_views,
    f.has_urgent_ticket,
    f.is_subscriber,
    coalesce(t.tag_list, '') as tags,
    case
        when coalesce(o.number_of_orders, 0) = 0 then 'prospect'
        when o.number_of_orders = 1 then 'new'
        when o.number_of_orders < 4 then 'repeat'
        else 'loyal'
    end as lifecycle
from stg_customers c
left join int_customers_with_region r on r.customer_id = c.customer_id
left join int_customer_orders o on o.customer_id = c.customer_id
left join int_events_pivoted e on e.customer_id = c.customer_id
left join int_customer_flags f on f.customer_id = c.customer_id
left join int_tag_matrix t on t.customer_id = c.customer_id
