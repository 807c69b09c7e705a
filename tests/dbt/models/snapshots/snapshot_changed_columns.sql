select
    order_id,
    array_remove(array[
        case when status = 'unknown' then 'status' end,
        case when coupon_code is null then 'coupon' end,
        case when note is null then 'note' end
    ], null) as missing_columns
from stg_orders
