/* wandb_files.h - the folder of a W&B offline run: FOLDER/wandb/offline-run-TIME-ID/run-ID.wandb. */
#ifndef MUSTER_TRAINER_REPORT_WANDB_FILES_H
#define MUSTER_TRAINER_REPORT_WANDB_FILES_H

#include "proto/include/muster_error.h"
#include "trainer/report/wandb.h"

struct wandb_files {
    int fd;                     /* -1: none */
    char *path, *folder, *name; /* of the log, of the run; the run's folder without what it is in */
    struct wandb log;
    struct crc32 crc;
    struct buffer first; /* records that the file begins with, or goes on with */
};

/* before: the name of the run that goes on, or NULL; where its file is no more, a new one gets its id. */
int wandb_files_open(struct wandb_files *files, const char *folder, const struct wandb_run *run,
                     const char *before, int64_t step, struct muster_error *err);
/* Of struct writer_file: appends records, all or none. */
int wandb_files_write(void *context, const char *data, size_t length, struct muster_error *err);
void wandb_files_free(struct wandb_files *files);

#endif
