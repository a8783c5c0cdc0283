/* trainer_cut.c - the end of a run's comms, and a step that was cut off by it.
 *
 * A rank changes its state when the gradients are reduced and their norm is known. Where a replica is several
 * ranks, it does so after a sum over all ranks (plan_update.c). So if a rank has changed anything, all others
 * can make the same change. */
#include "proto/base/error.h"
#include "runtime/train/comm_table.h"
#include "runtime/train/trainer_state.h"

/* Operations that change the state from step to step. Casts after the norm add to a reduced gradient. */
static bool changes_state(const struct plan *plan, int op, int clip)
{
    const enum op_kind kind = plan->ops[op].kind;
    return kind == OP_STEP || kind == OP_AVERAGE || kind == OP_ENCODE || kind == OP_DECODE ||
           (kind == OP_CAST && clip >= 0 && op > clip);
}

/* A step that was cut off, by its operations. */
struct cut {
    int clip;       /* -1: the plan has none: each group is stepped when its gradient is reduced */
    bool clipped;   /* gradients are reduced and their norm is known: that operation has run */
    bool summed;    /* the same, by the sum over all ranks: this rank has begun it */
    int done, left; /* changes of the state */
};

static struct cut find_cut(const struct trainer *trainer)
{
    const struct plan *plan = &trainer->plan;
    struct cut cut = {.clip = -1};
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        const bool ran = executor_ran(trainer->executor, i);
        if (op->kind == OP_CLIP) {
            cut.clip = i;
            cut.clipped = ran;
        }
        cut.summed |= op->kind == OP_COMM && op->to == plan->loss && ran;
        cut.done += changes_state(plan, i, cut.clip) && ran;
        cut.left += changes_state(plan, i, cut.clip) && !ran;
    }
    return cut;
}

/* Runs the changes of a step that have not run. all: none has run, and the executor is that of a later round.
 */
static int repeat(struct trainer *trainer, int clip, bool all)
{
    const struct plan *plan = &trainer->plan;
    for (int i = clip; i < plan->op_count; i++)
        if ((i == clip || changes_state(plan, i, clip)) && (all || !executor_ran(trainer->executor, i)) &&
            executor_repeat(trainer->executor, i))
            return -1;
    return trainer_sync_stream(trainer, STREAM_COMPUTE, INSTANT_NEVER, NULL);
}

static int count_step(struct trainer *trainer)
{
    const struct step_scalars *scalars = executor_address(&trainer->parts, trainer->plan.scalars, 0);
    trainer->steps++;
    trainer->updates += !scalars->skip;
    return trainer->scales
               ? loss_scale_step(&trainer->scale_options, scalars->skip != 0, &trainer->scale, NULL)
               : 0;
}

/* Ends a step that has changed the state in part; finds out whether a step without any change could end. */
static void complete_step(struct trainer *trainer)
{
    const struct cut cut = find_cut(trainer);
    const bool ready = cut.clip >= 0 && (cut.clipped || cut.summed) &&
                       trainer->plan.options.compression.kind == COMPRESSION_NONE;
    if (cut.done && cut.left)
        trainer->whole = trainer->whole && ready && repeat(trainer, cut.clip, false) == 0;
    if (cut.done || !cut.left)
        trainer->whole = trainer->whole && count_step(trainer) >= 0;
    trainer->able = trainer->whole && !cut.done && cut.left && ready;
}

int64_t trainer_finishes(const struct trainer *trainer)
{
    return trainer->whole && trainer->able ? trainer->steps + 1 : -1;
}

int trainer_finish(struct trainer *trainer)
{
    const struct plan *plan = &trainer->plan;
    int clip = 0;
    while (plan->ops[clip].kind != OP_CLIP)
        clip++; /* there is one: the step could be finished */
    trainer->able = false;
    trainer->whole = repeat(trainer, clip, true) == 0 && count_step(trainer) >= 0;
    return trainer->whole ? 0 : -1;
}

void trainer_stop(struct trainer *trainer)
{
    if (!trainer->ops->mend) {
        trainer->whole = false;
        return;
    }
    comm_table_abort(&trainer->comms);
    for (int i = 0; i < STREAM_COUNT; i++)
        (void)trainer_sync_stream(trainer, i, INSTANT_NEVER, NULL); /* drains; its error is known */
    trainer->ops->mend(trainer->device);
    if (trainer->averaged)
        trainer->whole = false; /* the averages are in the parameters' place */
    if (trainer->stepping && trainer->executor)
        complete_step(trainer);
    trainer->stepping = 0;
    trainer->averaged = false;
    comm_table_destroy(&trainer->comms);
    error_clear(&trainer->broken);
    atomic_store(&trainer->let_go, false);
}
