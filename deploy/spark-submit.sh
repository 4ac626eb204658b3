#!/bin/sh
# Example: spark-submit behind the hook. Arguments go to spark-submit: ./spark-submit.sh clicks.py
#
# It ends with spark-submit's exit code or, if the job must not start, with the hook's. A supervisor should not restart
# it after 2 (the configuration is wrong) and 4 (a partition needs a decision), and may try again after 5, 6 and 7.
#
# The job starts where it lives. `reconciler move` moves it.
#
# For client deploy mode. In cluster mode the driver does not see this environment: ship the file of RECONCILER_START to
# it, and set that variable there, and RECONCILER_START_SHA256 as it is here.
set -eu

exec reconciler hook \
    --config "${RECONCILER_CONFIG:-/etc/clicks/reconciler.toml}" \
    --job "${RECONCILER_JOB:-clicks}" \
    --wait "${RECONCILER_WAIT:-300}" \
    -- spark-submit "$@"
