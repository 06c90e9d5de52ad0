#!/bin/bash
# Potluck under SLURM: one worker a task, which meet at the first node. What follows the script's name goes to potluck:
#   sbatch --nodes 4 --ntasks-per-node 1 deploy/slurm.sh train --model resnet18 --dataset cifar10 --experiment-name four
#   sbatch --nodes 4 --ntasks-per-node 1 deploy/slurm.sh run --solo train.py
# Nodes may differ: the plan gives each worker what it can do. A node that fails costs the others a second, so the job
# must not end with it: --no-kill here, --kill-on-bad-exit=0 for the tasks.
#SBATCH --job-name=potluck
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --no-kill
#SBATCH --output=potluck-%j.out
set -euo pipefail

NODES=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${NODES%%$'\n'*}
MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
export MASTER_ADDR MASTER_PORT

# shellcheck disable=SC2016  # the variables are those of each task
exec srun --kill-on-bad-exit=0 bash -c '
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
  export LOCAL_WORLD_SIZE=${SLURM_NTASKS_PER_NODE:-1}
  exec potluck "$@"
' potluck "$@"
