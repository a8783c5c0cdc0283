/* tune_mode.h - what --nccl-tune takes. */
#ifndef MUSTER_LAUNCHER_TUNE_MODE_H
#define MUSTER_LAUNCHER_TUNE_MODE_H

enum tune_mode {
    TUNE_ON,
    TUNE_OFF,     /* only what a policy file says */
    TUNE_EXPLAIN, /* as on, with every decision and its reason printed */
};

#endif
