with payments as (
    select * from stg_payments
),

orders as (
    select * from stg_orders
)

select
    orders.customer_id,
    sum(payments.amount) as total_amount,
    sum(payments.fee) as total_fee,
    max(payments.paid_at)::date as last_payment_date
from payments
left join orders
    on payments.order_id = orders.order_id
where payments.status = 'success'
group by orders.customer_id
