/* mlflow.h - the texts of MLflow's file store, mlruns/EXPERIMENT/RUN/. Pure.
 *
 * meta.yaml of an experiment and of a run; metrics/train/loss with a line "milliseconds value step" for each
 * step; params/NAME and tags/NAME with a value each. */
#ifndef MUSTER_TRAINER_REPORT_MLFLOW_H
#define MUSTER_TRAINER_REPORT_MLFLOW_H

#include "proto/base/buffer.h"
#include "trainer/report/entry.h"

enum { MLFLOW_PARAM_MAX = 6000 }; /* bytes of a parameter's value that MLflow reads */
enum mlflow_status { MLFLOW_RUNNING = 1, MLFLOW_FINISHED = 3, MLFLOW_FAILED = 4, MLFLOW_KILLED = 5 };

struct mlflow_run {
    const char *id, *name, *experiment; /* experiment: its id */
    const char *store;                  /* the absolute path of mlruns */
    const char *user;
    int64_t start_ms, end_ms; /* since 1970; end 0: it runs */
    enum mlflow_status status;
};

/* All return -1 where there is no memory. */
int mlflow_experiment_text(const char *id, const char *name, const char *store, int64_t now_ms,
                           struct buffer *out);
int mlflow_run_text(const struct mlflow_run *run, struct buffer *out);
/* The metrics of an entry, each as its name, NUL, its line, NUL; nothing where its kind is not shown. */
int mlflow_add(const struct entry *entry, int64_t wall_ns, struct buffer *out);
/* How much of a metric's file stays where a run goes on after `step`. */
size_t mlflow_cut(const char *text, size_t length, int64_t step);
/* The value of "name: 'value'" in a meta.yaml, mem_free; NULL: none, or no memory. */
char *mlflow_read_value(const char *text, const char *name);

#endif
