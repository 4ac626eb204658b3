"""Commands for a failover: check, plan, show, sign, verify, apply, hook, checkpoint, rollback."""
