select
    r.country_name,
    round(sum(o.net_amount * r.tax_rate), 2) as tax
from int_orders_joined o
join int_customers_with_region r on r.customer_id = o.customer_id
where r.tax_rate is not null and o.status = 'completed'
group by r.country_name
