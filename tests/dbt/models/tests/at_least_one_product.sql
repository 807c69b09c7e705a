select *
from (
    select count(product_id) as filler_column from stg_products having count(product_id) = 0
) validation_errors
