select ticket_id from stg_tickets where closed_at < opened_at
