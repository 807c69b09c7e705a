select * from stg_orders where ordered_at > now()
