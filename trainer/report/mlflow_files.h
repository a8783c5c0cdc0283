/* mlflow_files.h - a run in MLflow's file store: STORE/EXPERIMENT/RUN. */
#ifndef MUSTER_TRAINER_REPORT_MLFLOW_FILES_H
#define MUSTER_TRAINER_REPORT_MLFLOW_FILES_H

#include "proto/include/muster_error.h"
#include "trainer/report/mlflow.h"

struct mlflow_files {
    char *store, *folder, *name; /* absolute; of the run; EXPERIMENT/RUN */
    char *user, *run_name, *id, *experiment;
    int64_t start_ms;
};

/* experiment: its name, made where it is not there; "" or NULL: Default. settings: "name=value" lines.
 * before: the name of the run that goes on after `step`, or NULL. */
int mlflow_files_open(struct mlflow_files *files, const char *store, const char *experiment,
                      const char *run_name, const char *settings, const char *before, int64_t step,
                      struct muster_error *err);
/* Of struct writer_file: the bytes of mlflow_add. */
int mlflow_files_write(void *context, const char *data, size_t length, struct muster_error *err);
int mlflow_files_end(struct mlflow_files *files, int exit_code, struct muster_error *err);
void mlflow_files_free(struct mlflow_files *files);

#endif
