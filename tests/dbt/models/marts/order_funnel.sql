with counts as (
    select
        count(*) as placed,
        count(*) filter (where shipped_at is not null) as shipped,
        count(*) filter (where status = 'completed') as completed,
        count(*) filter (where status = 'returned') as returned
    from stg_orders
)
select 1 as step, 'placed' as stage, placed as orders, 1.0 as rate from counts
union all
select 2, 'shipped', shipped, round(shipped::numeric / nullif(placed, 0), 4) from counts
union all
select 3, 'completed', completed, round(completed::numeric / nullif(placed, 0), 4) from counts
union all
select 4, 'returned', returned, round(returned::numeric / nullif(placed, 0), 4) from counts
