select
    md5(customer_id || '-' || month_start) as id,
    customer_id,
    month_start as date_month,
    mrr,
    mrr > 0 as is_active,
    mrr_change,
    change_category
from int_mrr_changes
