/* tune_mode.h - values of --nccl-tune. */
#ifndef MUSTER_LAUNCHER_CONFIG_TUNE_MODE_H
#define MUSTER_LAUNCHER_CONFIG_TUNE_MODE_H

enum tune_mode {
    NCCL_ENV_ON,
    NCCL_ENV_OFF,     /* only a policy file's settings */
    NCCL_ENV_EXPLAIN, /* as on, with every decision and its reason printed */
};

#endif
