"""Commands for a failover: check, plan, show, sign, apply, hook, checkpoint, rollback."""
