with window_functions as (
    select
        customer_id as partition_by_col,
        valid_from as lower_bound,
        coalesce(valid_to, '9999-12-31') as upper_bound,
        lead(valid_from) over (partition by customer_id order by valid_from, valid_to) as next_lower_bound,
        row_number() over (partition by customer_id order by valid_from desc, valid_to desc) = 1 as is_last_record
    from stg_subscriptions
),
calc as (
    select
        *,
        coalesce(lower_bound <= upper_bound, false) as lower_bound_less_than_upper_bound,
        coalesce(upper_bound <= next_lower_bound, is_last_record, false) as upper_bound_less_than_next_lower_bound
    from window_functions
)
select * from calc
where not (lower_bound_less_than_upper_bound and upper_bound_less_than_next_lower_bound)
