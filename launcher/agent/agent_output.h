/* agent_output.h - the workers' output in one agent: the pump, the folders of the run, the files of a
 * round, and the destination of each stream of a worker. Emits AGENT_FILES or AGENT_NO_FILES. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_OUTPUT_H
#define MUSTER_LAUNCHER_AGENT_AGENT_OUTPUT_H

#include "launcher/agent/agent_internal.h"

/* The pump, through which the agent's own log passes from then on; the first part to be created. */
extern const struct agent_part agent_output_part;
/* The run directory or, without log files, the directory of the workers' error files. */
extern const struct agent_part agent_folders_part;

/* NULL: there are no log files. */
const char *agent_output_run_directory(const struct agent *agent);
/* For error files if there are no log files; NULL: none either. */
const char *agent_output_error_directory(const struct agent *agent);
/* The run did not begin: its directory is removed. */
void agent_output_discard(struct agent *agent);

/* Opens the log files of the round on a thread; done at once if there are none. */
void agent_output_open_files(struct agent *agent);
/* Whether a round waits for its files: it runs, and has no worker yet. */
bool agent_output_opens_files(const struct agent *agent);

/* The destination of one stream of one worker. */
struct agent_route {
    int fd; /* the worker's descriptor; ours to close if owned */
    bool owned;
};

/* Only while a round begins. */
int agent_output_route(struct agent *agent, struct worker *worker, int stream, struct agent_route *route,
                       struct muster_error *err);
/* The last lines of its stderr as far as they passed through us, including all its output. */
void agent_output_last_words(struct agent *agent, const struct worker *worker, char *out, size_t size);

#endif
