select ticket_id, opened_at from stg_tickets order by opened_at, ticket_id fetch first 3 rows only
