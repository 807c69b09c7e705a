with windowed as (
    select
        date_day,
        lag(date_day) over (order by date_day) as previous_day
    from base_days
),
validation_errors as (
    select * from windowed where not(cast(date_day as timestamp) = cast(previous_day as timestamp) + ((interval '1 day') * (1)))
)
select * from validation_errors
