select
    (select count(*) from stg_customers) as customers,
    (select count(*) from stg_orders where status = 'completed') as completed_orders,
    (select sum(net_amount) from stg_order_items) as sold,
    (select max(mrr) from int_customer_mrr) as best_mrr,
    (select count(distinct customer_id) from stg_events) as visitors
