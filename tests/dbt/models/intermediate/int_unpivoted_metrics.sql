select customer_id, 'page_views' as metric, page_views as value from int_events_pivoted
union all
select customer_id, 'carts', carts from int_events_pivoted
union all
select customer_id, 'checkouts', checkouts from int_events_pivoted
