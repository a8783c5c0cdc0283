/* tracking.h - a run in the folders of experiment trackers: W&B's offline runs and MLflow's file store.
 *
 * A run that goes on after a restart goes on in the same W&B and MLflow runs: their names are kept in a file
 * (beside the checkpoints), and what later steps had written before is cut off. */
#ifndef MUSTER_TRAINER_REPORT_TRACKING_H
#define MUSTER_TRAINER_REPORT_TRACKING_H

#include "proto/base/log.h"
#include "trainer/report/mlflow_files.h"
#include "trainer/report/wandb_files.h"
#include "trainer/report/writer.h"

/* Texts that are NULL or "" are left out. */
struct tracking_options {
    const char *wandb_folder; /* in which wandb/offline-run-TIME-ID is made; NULL: none */
    struct wandb_run
        wandb; /* id "": a new one, or that of the run that goes on; settings: MLflow's as well */
    const char *mlflow_store; /* the path of mlruns; NULL: none */
    const char *experiment;
    const char *memory_path; /* the file that keeps the names; NULL: none */
    bool goes_on;            /* after a restart; otherwise these are new runs */
    int64_t step;            /* steps that are done */
};

struct tracking {
    struct wandb_files wandb;
    struct mlflow_files mlflow;
};

/* Zeroed before. -1: a folder or file cannot be made. */
int tracking_open(struct tracking *tracking, const struct tracking_options *options,
                  struct muster_error *err);
bool tracking_is_open(const struct tracking *tracking);
/* What a writer calls for the bytes of each. */
void tracking_files(struct tracking *tracking, struct writer_file *wandb, struct writer_file *mlflow);
/* When everything is written. exit_code: 0: all steps are done; 128 + a signal: it was stopped. */
void tracking_close(struct tracking *tracking, int exit_code, const struct log_sink *log);

#endif
