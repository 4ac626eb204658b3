"""Real servers for the stores' tests, each started when a test first asks for it."""

from fixtures_files import (  # noqa: F401
    files_hdfs_case,
    files_local_case,
    files_memory_case,
    hdfs,
)
from fixtures_hbase import (  # noqa: F401
    happy,
    hbase,
    hbase_anchored_case,
    hbase_cloudera_anchors_case,
    hbase_cloudera_case,
    hbase_flowlet_case,
    hbase_logsaver_case,
    hbase_metrics_case,
    hbase_shared,
    tables,
)
from fixtures_postgresql import (  # noqa: F401
    database,
    postgres,
    postgresql_grouped_case,
    postgresql_mapped_case,
    postgresql_own_case,
    psql,
)
from fixtures_zookeeper import (  # noqa: F401
    chroot,
    kazoo,
    open_zookeeper,
    zookeeper,
    zookeeper_apart_case,
    zookeeper_consumers_case,
    zookeeper_single_case,
)
