SELECT p.payment_id, p.order_id, o.customer_id, p.amount, p.fee, p.amount - COALESCE(p.fee, 0) AS net,
    o.order_date <= p.paid_at::date AS paid_after_order
FROM stg_payments p
LEFT JOIN stg_orders o ON o.order_id = p.order_id
WHERE p.status IN ('success', 'refunded')
