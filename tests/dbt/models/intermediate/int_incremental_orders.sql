-- as an incremental model compiles on its later runs
select * from stg_orders
where ordered_at >= (select coalesce(max(occurred_at), '1900-01-01') - interval '200 days' from stg_events)
