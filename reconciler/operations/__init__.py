"""What the commands do, without a terminal: read a configuration, check jobs, apply a plan and take it back."""
