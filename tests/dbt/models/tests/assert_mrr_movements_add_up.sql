with movements as (
    select
        month_start,
        coalesce(new_mrr, 0) + coalesce(expansion_mrr, 0) + coalesce(contraction_mrr, 0) + coalesce(churned_mrr, 0) + coalesce(reactivated_mrr, 0) as change,
        closing_mrr,
        lag(closing_mrr, 1, 0) over (order by month_start) as opening_mrr
    from mrr_movements
)
select * from movements where opening_mrr + change <> closing_mrr
