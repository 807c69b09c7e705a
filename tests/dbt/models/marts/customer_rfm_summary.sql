select
    segment,
    count(*) as customers,
    avg(score) as average_score,
    min(rfm) as lowest,
    string_agg(customer_id::text, ',' order by score desc, customer_id) as customers_by_score
from customer_rfm
group by segment
