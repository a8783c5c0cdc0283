/* warm_message.h - pure: the messages between an agent and a template (launcher/docs/warm.md), and the
 * command of the template for Python.
 *
 * Each message is one datagram of a SOCK_SEQPACKET socket. A request carries descriptors: the first is a
 * memfd with the payload, the others become 1, 2, 3 ... of the worker. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_MESSAGE_H
#define MUSTER_LAUNCHER_WARM_WARM_MESSAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/host/numa.h"
#include "proto/base/buffer.h"
#include "proto/base/text_list.h"

enum { WARM_MESSAGE_LIMIT = 4096 }; /* bytes of a datagram */

/* The variable with the template's end of the socket. */
#define WARM_ENV "MUSTER_TEMPLATE_FD"

/* symbol, word, meaning */
#define WARM_ANSWERS(X)                                                                                      \
    X(WARM_READY, "ready",                                                                                   \
      "workers can be requested; text: a line for each module left out, NAME TAB REASON")                    \
    X(WARM_WORKER, "worker", "the worker of a request runs, sent by itself; number, pid")                    \
    X(WARM_FAILED, "failed", "the worker of a request could not be made; number, text")

enum warm_answer_kind {
#define WARM_ANSWER_ENUM(symbol, word, meaning) symbol,
    WARM_ANSWERS(WARM_ANSWER_ENUM)
#undef WARM_ANSWER_ENUM
};

struct warm_answer {
    enum warm_answer_kind kind;
    unsigned number;
    pid_t pid;
    const char *text; /* in the message */
};

/* false: not an answer. message is NUL-terminated. */
bool warm_answer_parse(const char *message, struct warm_answer *answer);

/* "fork NUMBER AGENT PROCESSORS", appended; cpus: NULL for "-". */
int warm_request_write(unsigned number, pid_t agent, const struct numa_mask *cpus, struct buffer *out);
/* argv's and envp's counts and texts, each with a NUL after it, appended. */
int warm_payload_write(char *const *argv, char *const *envp, struct buffer *out);

/* The command of the template of Python workers whose command is worker ("python3 -u ..."), with its imports;
 * text_list_free frees it. -1 without memory. */
int warm_python_command(const char *modules, char *const *worker, struct text_list *command);

#endif
