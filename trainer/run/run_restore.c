/* run_restore.c - a run that takes no step: opened, with the parameters of a checkpoint or of files. See
 * run.h. */
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/run.h"

static bool is_set(const char *text)
{
    return text && *text;
}

/* Where --model's files give its sizes those of the configuration are another model's. */
void run_take_sizes(struct train_config *c)
{
    const struct knob_table *table = train_config_table();
    if (train_config_gives_sizes(c))
        return;
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].section, "model") && strcmp(table->knobs[i].name, "model.path") != 0)
            c->sources[i] = KNOB_FROM_DEFAULT;
    c->architecture = TRAIN_ARCHITECTURE_AUTO;
}

/* A checkpoint that was named, else the newest one of training.checkpoint_dir, else model.path: what a
 * training would go on from. Else what one has written at its end. */
static int take_parameters(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const char *folder = run->checkpoint ? run->checkpoint : c->checkpoint_dir;
    const bool adapts = train_config_adapts(c); /* their checkpoints have them alone */
    if (adapts && is_set(c->model_path) && muster_trainer_load(run->trainer, c->model_path, err) < 0)
        return -1;
    if (!run->from_model && is_set(folder)) {
        const int found = checkpoints_restore(&run->checkpoints, folder, err);
        if (found)
            return found < 0 ? -1 : 0;
        if (run->checkpoint || (!is_set(c->model_path) && !(is_set(c->output) && !access(c->output, R_OK))))
            return error_set(err, MUSTER_E_NOT_FOUND,
                             "there is no checkpoint in %s: name another one with --checkpoint, or a model's "
                             "files with --model",
                             folder);
    }
    if (adapts && is_set(c->model_path))
        return is_set(c->lora_path) ? muster_trainer_load(run->trainer, c->lora_path, err) : 0;
    if (is_set(c->model_path))
        return muster_trainer_load(run->trainer, c->model_path, err);
    if (is_set(c->output) && !access(c->output, R_OK)) /* what a training has left */
        return muster_trainer_load(run->trainer, c->output, err);
    return error_set(err, MUSTER_E_INVALID,
                     "there are no parameters: name a model's files with --model (model.path), or a "
                     "checkpoint with --checkpoint (training.checkpoint_dir)");
}

FILE *run_take_output(struct muster_error *err)
{
    const int fd = dup(STDOUT_FILENO);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        (void)error_errno(err, "cannot duplicate standard output");
        if (out)
            (void)fclose(out);
        else if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    return out;
}

int run_restore(struct run *run, int (*inputs)(struct run *run, struct muster_error *err),
                struct muster_error *err)
{
    if (run_open_world(run, err) < 0 || muster_world_agree(run->world, inputs(run, err), err) < 0)
        return -1;
    run->trainer = muster_trainer_open(run->world, run->model, (const char *const *)run->settings, err);
    if (!run->trainer)
        return -1;
    run->checkpoints = (struct checkpoints){.config = &run->config,
                                            .trainer = run->trainer,
                                            .rank = run->rank,
                                            .world_size = run->world_size,
                                            .last = -1};
    if (take_parameters(run, err) < 0)
        return -1;
    run_show_opened(run);
    return 0;
}
