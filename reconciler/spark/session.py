"""A SparkSession that can read Kafka, in the way of delta-spark's ``configure_spark_with_delta_pip``.

    from pyspark.sql import SparkSession
    from reconciler.spark.session import with_kafka

    spark = with_kafka(SparkSession.builder.appName("clicks")).getOrCreate()

PySpark's wheel lacks the Kafka connector, and one of another Spark minor version loads and then fails in the middle of
a query. ``with_kafka`` adds the one that fits, keeps the builder's own jars, and says which it chose.
"""

from __future__ import annotations

from reconciler.spark.connector import chosen_connector, with_kafka

__all__ = ["chosen_connector", "with_kafka"]
