"""The process for the ports of `api` and `pg`."""
