/* tracking_choice.h - which trackers a run is written for, and where: settings, then the variables of W&B and
 * MLflow. Pure: variables come through a function. */
#ifndef MUSTER_RUNTIME_CONFIG_TRACKING_CHOICE_H
#define MUSTER_RUNTIME_CONFIG_TRACKING_CHOICE_H

#include <stdbool.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* Settings; NULL or "": not given. */
struct tracking_wishes {
    const char *wandb; /* "auto": offline where there is a project; "offline", "off" */
    const char *project, *entity, *group, *run_name;
    const char *mlflow; /* a folder or file: URI; "auto": MLFLOW_TRACKING_URI, else mlruns; "off", "": none */
    const char *experiment;
    const char *log_folder;
};

enum { TRACKING_ID_MAX = 64 }; /* characters of a run's id */

/* Texts are owned by `texts`, or borrowed. */
struct tracking_choice {
    char *wandb_folder, *mlflow_store; /* mem_free; NULL: none */
    const char *project, *entity, *group, *run_name, *id, *notes, *job_type, *tags, *experiment;
};

typedef const char *(*tracking_variable)(const char *name);

/* MUSTER_E_INVALID with the way out where a wish is not possible: for a configuration's check. */
int tracking_check(const struct tracking_wishes *wishes, struct muster_error *err);
/* The wishes were checked. notes: lines about variables whose wishes are not fulfilled. */
int tracking_choose(const struct tracking_wishes *wishes, tracking_variable variable,
                    struct tracking_choice *choice, struct buffer *notes, struct muster_error *err);
void tracking_choice_free(struct tracking_choice *choice);

#endif
