/* tune_mode.h - what --nccl-tune takes. */
#ifndef MUSTER_LAUNCHER_CONFIG_TUNE_MODE_H
#define MUSTER_LAUNCHER_CONFIG_TUNE_MODE_H

enum tune_mode {
    NCCL_ENV_ON,
    NCCL_ENV_OFF,     /* only what a policy file says */
    NCCL_ENV_EXPLAIN, /* as on, with every decision and its reason printed */
};

#endif
