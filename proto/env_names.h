/* env_names.h - every environment variable that passes between the launcher and a worker, in one table.
 *
 * Names and meanings of the first group are torchrun's (PyTorch 2.13), so that the same worker runs under
 * both. */
#ifndef MUSTER_PROTO_ENV_NAMES_H
#define MUSTER_PROTO_ENV_NAMES_H

/* symbol, name, meaning */
#define MUSTER_ENV_NAMES(X)                                                                                  \
    X(ENV_RANK, "RANK", "global rank")                                                                       \
    X(ENV_LOCAL_RANK, "LOCAL_RANK", "index among the workers of this node")                                  \
    X(ENV_WORLD_SIZE, "WORLD_SIZE", "workers of all nodes")                                                  \
    X(ENV_LOCAL_WORLD_SIZE, "LOCAL_WORLD_SIZE", "workers of this node")                                      \
    X(ENV_GROUP_RANK, "GROUP_RANK", "rank of this node")                                                     \
    X(ENV_GROUP_WORLD_SIZE, "GROUP_WORLD_SIZE", "nodes in this round")                                       \
    X(ENV_ROLE_NAME, "ROLE_NAME", "the --role")                                                              \
    X(ENV_ROLE_RANK, "ROLE_RANK", "rank among workers of the same role")                                     \
    X(ENV_ROLE_WORLD_SIZE, "ROLE_WORLD_SIZE", "workers of the same role")                                    \
    X(ENV_MASTER_ADDR, "MASTER_ADDR", "host of the TCPStore that serves the workers")                        \
    X(ENV_MASTER_PORT, "MASTER_PORT", "port of that TCPStore")                                               \
    X(ENV_RESTART_COUNT, "TORCHELASTIC_RESTART_COUNT", "restarts of the job so far")                         \
    X(ENV_MAX_RESTARTS, "TORCHELASTIC_MAX_RESTARTS", "the --max-restarts")                                   \
    X(ENV_RUN_ID, "TORCHELASTIC_RUN_ID", "the --rdzv-id")                                                    \
    X(ENV_USE_AGENT_STORE, "TORCHELASTIC_USE_AGENT_STORE", "True: the agent serves the TCPStore")            \
    X(ENV_ERROR_FILE, "TORCHELASTIC_ERROR_FILE", "file to which a worker may write its exception as JSON")   \
    X(ENV_SIGNALS_TO_HANDLE, "TORCHELASTIC_SIGNALS_TO_HANDLE", "the signals that stop the job")              \
    X(ENV_ASYNC_ERROR_HANDLING, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1 unless the user set it")               \
    X(ENV_OMP_NUM_THREADS, "OMP_NUM_THREADS", "cores / workers unless the user set it")                      \
    X(ENV_CUDA_VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES",                                                      \
      "its own GPU with --virtual-local-rank, else as found")                                                \
    X(ENV_PYTHON_EXEC, "PYTHON_EXEC", "the interpreter for .py programs, python3 unless set")                \
    X(ENV_PYTHONUNBUFFERED, "PYTHONUNBUFFERED", "1 unless the user set it")                                  \
    X(ENV_PYTHONFAULTHANDLER, "PYTHONFAULTHANDLER", "1 unless the user set it")                              \
    X(ENV_LINE_PREFIX, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "prefix of tee'd lines")                     \
    X(ENV_AGENT_ID, "MUSTER_AGENT_ID",                                                                       \
      "marks every descendant of one agent, so that all of them can be found and stopped")                   \
    X(ENV_HOSTNAME, "MUSTER_HOSTNAME", "the agent's host name, where pods share a kernel's (muster local)")  \
    X(ENV_HEARTBEAT_FD, "MUSTER_HEARTBEAT_FD",                                                               \
      "pipe to which a worker may write its step: one line for each heartbeat")                              \
    X(ENV_NOTICE_FD, "MUSTER_NOTICE_FD", "socket from which a worker may read stop notices: one line each")  \
    X(ENV_PMI_FD, "PMI_FD", "MPI programs: socket of the process manager (--mpi)")                           \
    X(ENV_PMI_RANK, "PMI_RANK", "MPI programs: the rank")                                                    \
    X(ENV_PMI_SIZE, "PMI_SIZE", "MPI programs: number of ranks")                                             \
    X(ENV_MPI_LOCAL_RANK, "MPI_LOCALRANKID", "MPI programs: the local rank")                                 \
    X(ENV_MPI_LOCAL_RANKS, "MPI_LOCALNRANKS", "MPI programs: number of local ranks")                         \
    X(ENV_STORE_KEY_FD, "MUSTER_STORE_KEY_FD",                                                               \
      "file with this job's key for muster's own keys in the store, where the job has a secret")             \
    X(ENV_NVML_LIBRARY, "MUSTER_NVML_LIBRARY", "the file of NVML, libnvidia-ml.so.1 unless set")             \
    X(ENV_NODE_POOL, "MUSTER_NODE_POOL",                                                                     \
      "the node's pool as the cluster's operator names it, for --nccl-policy")                               \
    X(ENV_DESCRIPTION, "MUSTER_DESCRIPTION",                                                                 \
      "a file of muster doctor --describe, used in place of this machine (tests, replays)")                  \
    X(ENV_CHECKPOINT, "MUSTER_CHECKPOINT",                                                                   \
      "for training.checkpoint_command: the folder of the checkpoint that is complete")                      \
    X(ENV_CHECKPOINT_NAME, "MUSTER_CHECKPOINT_NAME",                                                         \
      "for training.checkpoint_command: the checkpoint's name, step-N")                                      \
    X(ENV_CHECKPOINT_DIR, "MUSTER_CHECKPOINT_DIR",                                                           \
      "for training.checkpoint_command: the folder of all checkpoints")                                      \
    X(ENV_CHECKPOINT_STEP, "MUSTER_CHECKPOINT_STEP", "for training.checkpoint_command: N")                   \
    X(ENV_NNODES, "MUSTER_NNODES",                                                                           \
      "MIN:MAX, the fewest and the most nodes of the job; elastic if they differ")                           \
    X(ENV_ROUND, "MUSTER_ROUND", "number of the round, from 0")

/* Start of the file of ENV_STORE_KEY_FD; the key follows (MAC_KEY_SIZE bytes). */
#define STORE_KEY_MAGIC "mustersk"

#define MUSTER_ENV_DECLARE(symbol, name, meaning) static const char symbol[] __attribute__((unused)) = name;
MUSTER_ENV_NAMES(MUSTER_ENV_DECLARE)
#undef MUSTER_ENV_DECLARE

#endif
