#!/bin/bash
# An array of jobs, each with a part of the cases:
#   job=$(sbatch --parsable --array=1-4 ci/slurm.sh)
#   sbatch --dependency=afterany:"$job" --wrap='cgins merge reports/*.json --out report.json'
# With a committed durations.json the parts take about equally long. A part without a report fails the merge.
#SBATCH --job-name=cgins
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
set -euo pipefail

part=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN + 1))/$SLURM_ARRAY_TASK_COUNT
arguments=(--cgins --cgins-shard="$part" --cgins-json="reports/${part%/*}.json")
if [ -f durations.json ]; then
  arguments+=(--cgins-durations=durations.json)
fi
mkdir -p reports
exec pytest "${arguments[@]}" "$@"
