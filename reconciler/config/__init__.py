"""The configuration: TOML to ``Config``, secrets from the environment or files, store addresses, redaction.

In: a file and an environment. Out: frozen settings, or every fault, each a ``ConfigError`` with the file and the key.
Other rooms import ``config.file``; ``config.secrets`` stands apart, since every command loads it before all else.
"""
