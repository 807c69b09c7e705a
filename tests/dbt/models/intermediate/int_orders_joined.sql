with orders as (

    select * from stg_orders

),

items as (

    select * from int_order_items_summed

),

payments as (

    select * from int_order_payments_pivoted

),

final as (

    select
        orders.order_id,
        orders.customer_id,
        orders.order_date,
        orders.ordered_at,
        orders.status,
        coalesce(items.item_count, 0) as item_count,
        coalesce(items.net_amount, 0) as net_amount,
        coalesce(payments.total_amount, 0) as paid_amount,
        coalesce(items.net_amount, 0) + orders.shipping_amount - coalesce(payments.total_amount, 0) as balance

    from orders
    left join items on orders.order_id = items.order_id
    left join payments on orders.order_id = payments.order_id

)

select * from final
