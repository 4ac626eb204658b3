"""The command for the time after a failover: audit."""
