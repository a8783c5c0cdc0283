/* agent_choice.h - the agents of this machine that a command may ask, and which of them is meant. */
#ifndef MUSTER_LAUNCHER_COMMANDS_AGENT_CHOICE_H
#define MUSTER_LAUNCHER_COMMANDS_AGENT_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "launcher/status/status_client.h"
#include "proto/base/buffer.h"
#include "proto/base/knob.h"

/* An agent replies in its loop's next turn. */
#define AGENT_PATIENCE_NS (5 * NS_PER_S)

/* Rows of the table of a command that asks one agent. */
#define AGENT_CHOICE_ROWS(pid_, job_)                                                                        \
    {.name = "pid",                                                                                          \
     .type = KNOB_INT,                                                                                       \
     .offset = (pid_),                                                                                       \
     .max = INT32_MAX,                                                                                       \
     .section = "Flags",                                                                                     \
     .help = "the agent with this process id, if several run"},                                              \
    {                                                                                                        \
        .name = "job", .type = KNOB_TEXT, .offset = (job_), .section = "Flags",                              \
        .help = "the agent of this job id (--rdzv-id), if several run"                                       \
    }

/* And of a command that waits for the agent's job. */
#define AGENT_WAIT_ROWS(no_wait_, no_wait_help, timeout_, timeout_help)                                      \
    {.name = "no-wait",                                                                                      \
     .type = KNOB_BOOL,                                                                                      \
     .offset = (no_wait_),                                                                                   \
     .section = "Flags",                                                                                     \
     .help = (no_wait_help)},                                                                                \
    {                                                                                                        \
        .name = "timeout", .type = KNOB_DOUBLE, .offset = (timeout_), .initial = "300", .min = 0,            \
        .max = 1e6, .section = "Flags", .help = (timeout_help)                                               \
    }
/* The agent's socket has one reply a connection: a command that waits asks again after this. */
enum { AGENT_PAUSE_MS = 50 };

struct agent_choice {
    const char *command; /* "muster status", in messages */
    int64_t pid;         /* 0: any */
    const char *job;     /* NULL: any */
};

/* An agent's one-line reply. */
struct agent_found {
    const struct status_name *name;
    pid_t pid;
    long node_rank;
    char state[32];
    char *job; /* into line */
    struct buffer line;
};

/* The agents that are meant; zeroed at first. */
struct agents_found {
    struct status_name *names;
    struct agent_found *found;
    size_t count;
};

/* Queries all agents; complaint gets the silent agents, or that there is none. */
int agents_find(const struct agent_choice *choice, struct agents_found *agents, struct buffer *complaint,
                struct muster_error *err);
void agents_free(struct agents_found *agents);
void agents_table(const struct agents_found *agents, struct buffer *out);
void agents_json(const struct agents_found *agents, struct buffer *out);
/* After a list of several. */
void agents_ask_for_one(const struct agent_choice *choice, const struct agents_found *agents,
                        struct buffer *complaint);

#endif
