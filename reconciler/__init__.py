"""The failover offset reconciler: the right Kafka offset after a failover, proven before the job starts."""

__version__ = "0.1.0"
