/* doctor.h - pure: is this machine fit for a job? A table of rows from a description: check, finding,
 * remedy. It needs nothing but the description. A check that is impossible in this container is SKIPPED,
 * which is not a fault. */
#ifndef MUSTER_RUNTIME_NCCL_DOCTOR_DOCTOR_H
#define MUSTER_RUNTIME_NCCL_DOCTOR_DOCTOR_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

enum doctor_status { DOCTOR_FINE, DOCTOR_SKIPPED, DOCTOR_WARNING, DOCTOR_UNFIT };

struct doctor_row {
    char name[DESCRIPTION_NAME]; /* stable: "gpu-count", "shm", ... */
    enum doctor_status status;
    char found[DESCRIPTION_TEXT]; /* the finding */
    char cure[DESCRIPTION_TEXT];  /* the remedy; "" for none */
};

struct doctor_report {
    struct doctor_row *rows;
    int count;
};

/* report must be zeroed. */
int doctor_examine(const struct description *description, struct doctor_report *report,
                   struct muster_error *err);
void doctor_report_free(struct doctor_report *report);
/* The worst of all rows; SKIPPED counts as FINE. */
enum doctor_status doctor_verdict(const struct doctor_report *report);
/* 0 fine, 1 warnings, 3 unfit. */
int doctor_exit_code(enum doctor_status verdict);

const char *doctor_status_name(enum doctor_status status); /* "ok", "skipped", "warning", "unfit" */
/* A table for display, worst rows first, then all others; a JSON object {host, verdict, rows: [...]}; one
 * line with all faults. */
int doctor_print(const struct doctor_report *report, int columns, struct buffer *out);
int doctor_json(const struct description *description, const struct doctor_report *report,
                struct buffer *out);
int doctor_summary(const struct doctor_report *report, struct buffer *out);

#endif
