select
    s.*,
    f.landing_page,
    f.device,
    row_number() over (partition by s.customer_id order by s.session_start, s.session_id) as visit_number,
    s.session_start - lag(s.session_end) over (partition by s.customer_id order by s.session_start, s.session_id) > interval '7 days' as is_comeback
from int_sessions as s
left join int_sessions_first_touch as f on s.session_id = f.session_id
