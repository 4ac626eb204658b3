"""The configuration: TOML to ``Config``, secrets from the environment or files, store addresses, redaction.

In: a file and an environment. Out: frozen settings, or a ``ConfigError`` that names the file and the key.
"""
