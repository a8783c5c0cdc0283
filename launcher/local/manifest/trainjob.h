/* trainjob.h - a TrainJob of Kubeflow Trainer (api.h has the release) on its runtime. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_TRAINJOB_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_TRAINJOB_H

#include "launcher/local/manifest/batch_job.h"

enum { TRAINJOB_PORT = 29500 };

struct trainjob {
    const struct document_object *object, *runtime; /* runtime NULL: a built-in one */
    const char *file;                               /* the runtime's */
    const struct tree_node *runtime_node, *spec, *trainer, *torch, *mpi;
    const struct tree_node *set_spec; /* spec of the runtime's JobSet, patched */
    const char *name, *runtime_name;
    int64_t nodes;
    char *processes; /* PET_NPROC_PER_NODE; NULL: not known yet */
    char *master;    /* <trainjob>-node-0-0.<trainjob> */
    struct facts variables;
    struct text_list more; /* words after the command */
};

/* Words that Trainer puts after the command "tune run": the recipe, its configuration, the runtime's paths.
 * container is the runtime's; gpus is the number on a node. -1 without memory. */
int trainjob_tune(const struct trainjob *job, const struct tree_node *container, int64_t gpus,
                  struct text_list *more);
/* runtimePatches, and podTemplateOverrides and podSpecOverrides of older releases, into job->set_spec. -1
 * without memory. */
int trainjob_patch(struct building *b, struct trainjob *job);
/* Whether the TrainJob's command is exactly "tune run". */
bool trainjob_is_tune(const struct trainjob *job);

#endif
