/* run_classes.c - what a run of a classifier shows, of pictures or of labelled texts: the line of an epoch,
 * and the figures of an evaluation that follow from how its classes were found. See run.h. */
#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/run/run.h"

bool run_classifies(const struct run *run)
{
    return run->pictures || run->labelled;
}

const char *run_unit(const struct run *run)
{
    return run->pictures ? "pictures" : run->labelled ? "texts" : "tokens";
}

static int64_t samples_of_epoch(const struct run *run)
{
    return run->pictures ? pictures_samples(run->pictures) : labelled_samples(run->labelled);
}

/* The samples of a step are counted for the epoch in which it ends. After a resume the sums begin anew. */
void run_epoch_step(struct run *run, const struct muster_result *result)
{
    const int64_t samples = samples_of_epoch(run), taken = muster_trainer_state_now(run->trainer).taken;
    struct run_epoch *e = &run->epoch;
    e->loss += result->loss;
    e->correct += result->correct;
    e->rows += result->targets;
    e->steps++;
    const bool ends = taken / samples > (taken - run->config.global_batch) / samples,
               last = run->progress.done == run_last_step(run);
    if (!ends && !last)
        return;
    const int64_t epoch = ends ? taken / samples : taken / samples + 1;
    if (!run->rank && e->rows) {
        run_show_line_end(run);
        printf("Epoch %lld: Loss=%.4f, Accuracy=%.2f%%\n", (long long)epoch, e->loss / (double)e->steps,
               100 * e->correct / (double)e->rows);
        (void)fflush(stdout); /* a closed console does not stop the training */
    }
    *e = (struct run_epoch){0};
}

/* ---- evaluations ---- */

int run_classes_begin(struct run *run, struct muster_error *err)
{
    struct run_evaluation *e = &run->evaluation;
    if (!run_classifies(run))
        return 0;
    mem_free(e->classes);
    e->classes = mem_calloc((size_t)train_config_classes(&run->config), sizeof *e->classes);
    return e->classes ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for an evaluation");
}

int run_classes_add(struct run *run, struct muster_error *err)
{
    for (int i = 0; run_classifies(run) && i < train_config_classes(&run->config); i++) {
        double rows[3];
        if (muster_trainer_evaluated_class(run->trainer, i, rows, err) < 0)
            return -1;
        struct class_rows *c = &run->evaluation.classes[i];
        c->there += rows[0];
        c->taken += rows[1];
        c->found += rows[2];
    }
    return 0;
}

static double share(double part, double of)
{
    return of > 0 ? part / of : 0;
}

/* Of two classes those of the second, "positive"; of more the means over the classes that are there or were
 * taken for. A share of nothing is 0. */
void run_classes_end(struct run *run)
{
    struct run_evaluation *e = &run->evaluation;
    const int classes = run_classifies(run) ? train_config_classes(&run->config) : 0;
    double rows = 0, correct = 0, counted = 0;
    e->precision = e->recall = e->f1 = 0;
    for (int i = 0; i < classes; i++) {
        const struct class_rows *c = &e->classes[i];
        rows += c->there;
        correct += c->found;
        if (!(c->there + c->taken > 0) || (classes == 2 && i == 0))
            continue;
        e->precision += share(c->found, c->taken);
        e->recall += share(c->found, c->there);
        e->f1 += share(2 * c->found, c->taken + c->there);
        counted++;
    }
    e->accuracy = classes ? 100 * share(correct, rows) : NAN;
    e->precision = share(e->precision, counted);
    e->recall = share(e->recall, counted);
    e->f1 = share(e->f1, counted);
}
