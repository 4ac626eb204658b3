"""The configuration: TOML to ``Config``, secrets from the environment or files, store addresses, redaction.

In: a file and an environment. Out: frozen settings, or every fault, each a ``ConfigError`` with the file and the key.
Other rooms import ``config.file``. Every command loads ``config.secrets`` first, to keep secrets out of its log.
"""
