/* warm.h - warm workers: a template process of this node imports what workers need, once, and each worker is
 * made from it by fork.
 *
 * The template (launcher/docs/warm.md) lives as long as the agent, over all rounds. A worker that it makes is
 * the agent's child like any other: its parent in between ends, and the agent adopts orphans. The agent knows
 * the template only by its messages on a socket. A template that ends, or does not answer, is not replaced:
 * workers are then started without it.
 *
 * With --warm-keep it is forked from a template that was there before the job and stays after it
 * (warm_kept.h). Its workers are then children of a reaper (warm_reaper.h), and their ends are taken from
 * there. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_H
#define MUSTER_LAUNCHER_WARM_WARM_H

#include <stdint.h>

#include "launcher/loop/loop.h"
#include "launcher/process/spawn.h"
#include "launcher/warm/warm_kept.h"
#include "launcher/warm/warm_reaper.h"
#include "proto/include/muster_error.h"

enum warm_state {
    WARM_IMPORTING, /* the template was started and is not ready */
    WARM_SERVING,   /* it makes workers */
    WARM_ENDED,     /* it ended, or was ended: no worker can be made any more */
};

struct warm;

/* Starts the template: options->path with argv, envp and the rest as of a worker; its output goes to out_fd
 * and err_fd; extra_fds must be empty. changed is called in the loop after each change of state. */
struct warm *warm_open(const struct spawn_options *options, struct loop *loop, void (*changed)(void *context),
                       void *context, struct muster_error *err);
/* The same from a kept template. ended: called in the loop when warm_take_end and warm_is_empty may have
 * news. */
struct warm *warm_open_kept(const struct spawn_options *options, const struct warm_keep *keep,
                            struct loop *loop, void (*changed)(void *context), void (*ended)(void *context),
                            void *context, struct muster_error *err);
/* Ends the template; its workers live on, except a kept template's. Accepts NULL. */
void warm_close(struct warm *warm);

enum warm_state warm_state(const struct warm *warm);
/* WARM_SERVING: "NAME: REASON; ..." of the modules that the template does not have; "": it has all.
 * WARM_ENDED: why it ended. */
const char *warm_reason(const struct warm *warm);
/* The process between agent and template, whose child is the template: not to be signalled with workers. 0:
 * none. */
pid_t warm_keeper(const struct warm *warm);
/* The parent of its workers, if that is not this process; 0: it is, or there is none. */
pid_t warm_reaper(const struct warm *warm);
bool warm_reaper_has_gone(const struct warm *warm);
/* WARM_SERVING: a kept template's description, for the log; else "". */
const char *warm_note(const struct warm *warm);
/* When warm_tick is due: a kept template has to answer by then. */
struct instant warm_deadline(const struct warm *warm);
void warm_tick(struct warm *warm, struct instant now);

/* The next process of its reaper that has ended, and is reaped now; false: none. Accepts NULL. */
bool warm_take_end(struct warm *warm, struct warm_end *end);
/* Whether its reaper has no process left. Accepts NULL. */
bool warm_is_empty(const struct warm *warm);

/* Requests a worker with these options (path is not used: the template is the program). number: of the
 * request, in the answer. -1: no request was made. WARM_SERVING only. */
int warm_request(struct warm *warm, unsigned number, const struct spawn_options *options,
                 struct muster_error *err);
/* Waits for the next answer, at most until deadline: the worker's pid, which is our child (or the
 * reaper's) and leads its session, and the number of its request. -1: a worker could not be made, or none
 * answered: the template is ended, so that no late worker appears, and no further answer comes. */
pid_t warm_collect(struct warm *warm, struct instant deadline, unsigned *number, struct muster_error *err);

#endif
