"""Commands for the time after a failover: audit, compact."""
