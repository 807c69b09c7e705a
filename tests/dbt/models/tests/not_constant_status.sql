select count(distinct status) as filler_column from stg_orders having count(distinct status) = 1
