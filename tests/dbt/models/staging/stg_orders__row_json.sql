select
    id as order_id,
    jsonb_build_object('status', status, 'shipping', shipping, 'date', order_date) as document,
    to_jsonb(status) as status_json,
    jsonb_strip_nulls(jsonb_build_object('coupon', coupon, 'note', note)) as extras
from raw_orders
