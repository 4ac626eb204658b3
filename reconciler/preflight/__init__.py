"""Before anything is needed: a configuration written from a live cluster (init), explained and tried (config check).

In: a configuration, or the addresses of clusters and stores. Out: sentences, each connection's result, TOML text.
"""
