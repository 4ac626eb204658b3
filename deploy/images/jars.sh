#!/bin/bash
# jars.sh kafka|zookeeper|hbase|spark: puts that set of jars into /out with the product's own fetcher, which defines it.
#
# A set that is already in /jars is used unchanged. Otherwise Maven is installed; MAVEN_MIRROR replaces Maven Central.
set -euo pipefail
case $1 in
  spark) found=$(compgen -G '/jars/spark-kafka-*/manifest.json' || true) place='artifacts.spark_kafka_connector(print)[0].parent' ;;
  *) found=$(compgen -G "/jars/$1-*/manifest.json" || true) place="artifacts.$1_jars(print)" ;;
esac
if [ -z "$found" ]; then
  install-packages maven
  if [ -n "${MAVEN_MIRROR:-}" ]; then
    mkdir -p ~/.m2
    cat >~/.m2/settings.xml <<END
<settings><mirrors><mirror><id>given</id><mirrorOf>*</mirrorOf><url>$MAVEN_MIRROR</url></mirror></mirrors></settings>
END
  fi
fi
mkdir /out
"${PYTHON:-python3}" - "$1" <<END
import shutil, sys
from pathlib import Path
from reconciler import artifacts
place = $place
shutil.copytree(place, Path("/out", place.name) if sys.argv[1] == "spark" else "/out", dirs_exist_ok=True)
END
