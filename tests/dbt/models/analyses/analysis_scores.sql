select
    regr_slope(monetary::float8, frequency::float8) as slope,
    covar_samp(monetary::float8, frequency::float8) as covariance,
    avg(recency_days) as recency
from int_rfm_scores
