"""Commands for the time after a failover: audit, audit-log, compact."""
