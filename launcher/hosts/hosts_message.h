/* hosts_message.h - the message to a node of the tree, through ssh's standard input: its place, the job's
 * secret, environment, command, and the hosts below it (pure).
 *
 * "muster-hosts-1 BYTES\n", then so many bytes: fields of a letter and a text, each ended by a zero byte.
 * Lines follow: "s15" is a signal for the agent, "." a sign of life. */
#ifndef MUSTER_LAUNCHER_HOSTS_HOSTS_MESSAGE_H
#define MUSTER_LAUNCHER_HOSTS_HOSTS_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

/* --- lists of hosts ---
 *
 * The hosts of a job: --hosts, and the host files of DeepSpeed and Open MPI (pure). */

enum { HOST_LIST_LIMIT = 16384, HOST_NAME_LIMIT = 255, HOST_SLOTS_LIMIT = 4096 };

struct host_entry {
    char *name;    /* for ssh: host or user@host, an IPv6 address without brackets; never begins with '-' */
    int64_t slots; /* workers; 0: not given */
};

struct host_list {
    struct host_entry *entries;
    int count;
};

/* "a:8,b:8,user@c,[fd00::1]:8". A host that is named again adds its slots to the first entry. */
int host_list_parse(const char *text, struct host_list *list, struct muster_error *err);
/* Lines of DeepSpeed ("worker-1 slots=8") and Open MPI ("host slots=8 max_slots=8", "host:8", a host alone);
 * # begins a comment. Errors name the file and the line. */
int host_list_parse_file(const char *file, const char *text, size_t length, struct host_list *list,
                         struct muster_error *err);
/* The host as host_list_parse reads it, without its slots; NULL: no memory. */
char *host_entry_write(const struct host_entry *entry);
/* The host without user@. */
const char *host_entry_address(const struct host_entry *entry);
void host_list_free(struct host_list *list);

enum { HOSTS_MESSAGE_LIMIT = 900 << 10, HOSTS_FANOUT = 32 };

/* One subtree: entries[0] is the node itself, ranks follow each other from first_rank. */
struct hosts_message {
    int first_rank;
    struct host_list hosts;
    char *secret, *directory, *subcommand, *ssh;
    struct text_list env, argv; /* argv: after "muster run" */
};

int hosts_message_write(const struct hosts_message *message, struct buffer *out);
/* Reads the front of data. 1: a whole message, *used bytes long; 0: more is needed; -1: it is malformed.
 * hosts_message_free in every case. */
int hosts_message_read(const char *data, size_t length, struct hosts_message *message, size_t *used,
                       struct muster_error *err);
void hosts_message_free(struct hosts_message *message);

/* How hosts 1.. of a subtree (0.. without own) are divided among direct connections: connection number i has
 * *count hosts from *first on; returns the number of connections, at most HOSTS_FANOUT. */
int hosts_divide(int hosts, int i, int *first, int *count);

#endif
