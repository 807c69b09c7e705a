SELECT
    id AS subscription_id,
    customer_id,
    plan AS plan_name,
    mrr::numeric(12, 2) AS monthly_amount,
    started_on AS valid_from,
    CASE WHEN cancelled_on > started_on THEN cancelled_on END AS valid_to,
    COALESCE(seats, 1) AS seats,
    is_trial
FROM raw_subscriptions
