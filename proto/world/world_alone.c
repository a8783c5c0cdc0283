/* world_alone.c - see world_alone.h. */
#include "proto/world/world_alone.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

#define PET_NODES "PET_NNODES"
#define PET_PROCS "PET_NPROC_PER_NODE"

/* "3" and "1:3" are 3; 0: not a number, such as "auto". */
static int64_t most_of(const char *text)
{
    const char *colon = strchr(text, ':');
    int64_t number;
    return text_int64(colon ? colon + 1 : text, &number) && number > 0 ? number : 0;
}

int world_alone_refuse(const struct world_variables *v, bool ranked)
{
    const char *nodes = world_text(v, PET_NODES), *procs = world_text(v, PET_PROCS), *name = NULL;
    const bool many = procs && most_of(procs) > 1;
    if (world_text(v, ENV_LOCAL_RANK))
        return 0; /* a launcher has read them */
    if (many)
        name = PET_PROCS;
    else if (nodes && most_of(nodes) != 1 && !ranked)
        name = PET_NODES;
    if (!name)
        return 0;
    return error_set(v->err, MUSTER_E_INVALID,
                     "%s is '%.40s', but no launcher has started this process (LOCAL_RANK is not set): %s; "
                     "start the program by `muster run`, which reads PET_*, such as `muster run muster-train "
                     "CONFIG`; unset %s to run alone",
                     name, many ? procs : nodes,
                     ranked ? "it would be one of several processes of this node that no launcher starts"
                            : "each pod or node would train alone",
                     name);
}

void world_alone_note(const char *(*get)(void *context, const char *name), void *context,
                      char note[WORLD_ALONE_NOTE])
{
    const struct world_variables variables = {get, context, NULL}, *v = &variables;
    const char *tasks = world_text(v, "SLURM_NTASKS"), *index = world_text(v, "JOB_COMPLETION_INDEX"),
               *procs = world_text(v, PET_PROCS);
    note[0] = '\0';
    if (world_text(v, ENV_LOCAL_RANK))
        return; /* a launcher has made this world of one */
    if (procs && !most_of(procs))
        (void)snprintf(note, WORLD_ALONE_NOTE,
                       PET_PROCS " is '%.40s', but no launcher has started this process: it runs alone; "
                                 "`muster run muster-train CONFIG` starts one for each GPU",
                       procs);
    else if (tasks && most_of(tasks) > 1 && !world_text(v, "SLURM_STEP_NUM_TASKS"))
        (void)snprintf(note, WORLD_ALONE_NOTE,
                       "SLURM_NTASKS is %.40s, but srun has not started this process: it runs alone; `srun "
                       "muster-train CONFIG` starts all tasks",
                       tasks);
    else if (index)
        (void)snprintf(
            note, WORLD_ALONE_NOTE,
            "JOB_COMPLETION_INDEX is %.40s, but no launcher has started this process: this pod runs "
            "alone; `muster run --nnodes=PODS muster-train CONFIG` makes one world of an indexed "
            "Job's pods",
            index);
}
