/* host_list.h - the hosts of a job: --hosts, and the host files of DeepSpeed and Open MPI (pure). */
#ifndef MUSTER_LAUNCHER_HOSTS_HOST_LIST_H
#define MUSTER_LAUNCHER_HOSTS_HOST_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { HOST_LIST_LIMIT = 4096, HOST_NAME_LIMIT = 255, HOST_SLOTS_LIMIT = 4096 };

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

#endif
