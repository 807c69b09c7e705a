select email from stg_customers where trim(email) = ''
