/* trace.h - a rank's operations as a trace for Perfetto (ui.perfetto.dev). Pure.
 *
 * A rank is a process of the trace; its streams are tracks; a slice is an operation on a track, from one
 * instant to another. Slices of a track are in the order of time. They do not overlap, but may be nested.
 * Times are of CLOCK_MONOTONIC; the first packet relates them to 1970, so that ranks of several hosts agree
 * as well as their clocks do. */
#ifndef MUSTER_TRAINER_REPORT_TRACE_H
#define MUSTER_TRAINER_REPORT_TRACE_H

#include <stdint.h>

#include "proto/base/buffer.h"

enum { TRACE_NOTES = 8, TRACE_TRACKS = 16 };

struct trace_note {
    const char *name, *text; /* text NULL: use number */
    int64_t number;
};

struct trace_slice {
    int track;
    const char *name, *category; /* "compute", "comm", "wait", "step" */
    int64_t begin_ns, end_ns;    /* monotonic */
    int note_count;
    struct trace_note notes[TRACE_NOTES];
};

struct trace_process {
    int rank;
    const char *host;
    int64_t monotonic_ns, wall_ns; /* both clocks at the same moment */
};

/* These functions append packets. -1: no memory. */
int trace_begin(const struct trace_process *process, struct buffer *out);
int trace_track(const struct trace_process *process, int track, const char *name, struct buffer *out);
int trace_slice(const struct trace_process *process, const struct trace_slice *slice, struct buffer *out);

#endif
