select email from stg_customers where email is null
