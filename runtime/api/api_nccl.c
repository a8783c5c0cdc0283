/* api_nccl.c - NCCL's environment where no launcher of muster's has decided it: under torchrun, mpirun, srun.
 *
 * The same rules as `muster run` has (runtime/nccl/decide), before the process makes its first communicator,
 * for variables of NCCL's that are not set. The driver is not asked: that takes a process of its own, and
 * CUDA has begun here. */
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/env_names.h"
#include "runtime/api/api_trainer.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/read/reader.h"

/* The master's address as numbers; "" where its name has none. */
static void find_master(const char *master, char numeric[NI_MAXHOST])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *numeric = '\0';
    if (!master || getaddrinfo(master, NULL, &hints, &found))
        return;
    if (getnameinfo(found->ai_addr, found->ai_addrlen, numeric, NI_MAXHOST, NULL, 0, NI_NUMERICHOST))
        *numeric = '\0';
    freeaddrinfo(found);
}

static int describe_machine(const struct trainer_options *options, struct description *machine,
                            struct muster_error *err)
{
    char host[DESCRIPTION_NAME] = "", address[NI_MAXHOST] = "";
    const char *master = getenv("MASTER_ADDR");
    const int local = options->local_world_size > 0 ? options->local_world_size : 1;
    const int nodes = (options->world_size + local - 1) / local;
    if (gethostname(host, sizeof host - 1) < 0)
        *host = '\0';
    if (nodes > 1)
        find_master(master, address);
    const struct reader_options reading = {.root = "",
                                           .environment = environ,
                                           .home = getenv("HOME"),
                                           .host = host,
                                           .master = nodes > 1 ? master : NULL,
                                           .master_address = *address ? address : NULL,
                                           .nnodes = nodes,
                                           .local_workers = local,
                                           .gpus_wanted = local};
    if (reader_read(&reading, machine, err) < 0)
        return -1;
    if (!machine->gpu_count && !machine->device_files)
        machine->device_files = local; /* a container may hide them, but these ranks compute on some */
    if (*address)
        reader_route(machine, address, options->rank < local);
    return 0;
}

/* Sets what is not set, for NCCL alone, and warns; the lines that report it are appended. */
static int apply(const struct decision_list *list, struct buffer *lines, struct muster_error *err)
{
    for (int i = 0; i < list->count; i++) {
        const struct decision *d = &list->items[i];
        if (strncmp(d->name, "NCCL_", 5) != 0 || (d->kind != DECISION_SET && d->kind != DECISION_WARNED))
            continue;
        /* No thread of ours reads the environment later than this; one that has been set is never changed. */
        if (d->kind == DECISION_SET && setenv(d->name, d->value, 0) < 0)
            return error_errno(err, "setting %s for NCCL", d->name);
        buffer_printf(lines, "NCCL: %s%s=%s: %s\n", d->kind == DECISION_SET ? "" : "warning: ", d->name,
                      d->value, d->reason);
    }
    return lines->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for NCCL's variables") : 0;
}

void api_nccl_environment(struct muster_trainer *t, const struct trainer_options *options)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* ranks may be threads of a process */
    const char *tune = getenv("MUSTER_NCCL_TUNE"), *policy = getenv("MUSTER_NCCL_POLICY");
    struct description machine = {0};
    struct decision_list decisions = {0};
    struct muster_error err = {0};
    scope_buffer lines = {0};
    if (!t->comm.nccl || getenv(ENV_ROUND))
        return; /* the launcher has decided */
    if (policy && *policy)
        buffer_printf(
            &lines,
            "NCCL: warning: MUSTER_NCCL_POLICY=%s is not read, as only muster run reads it: start the "
            "workers by muster run, or set its variables in their environment\n",
            policy);
    pthread_mutex_lock(&one_at_a_time);
    const bool wanted = !tune || strcmp(tune, "off") != 0;
    if (wanted && (describe_machine(options, &machine, &err) || decide(&machine, NULL, &decisions, &err) ||
                   apply(&decisions, &lines, &err)))
        buffer_printf(&lines, "NCCL: warning: its variables are left alone: %s\n", err.text);
    pthread_mutex_unlock(&one_at_a_time);
    decision_list_free(&decisions);
    description_free(&machine);
    mem_free(t->nccl_lines);
    t->nccl_lines = lines.length && !lines.failed ? buffer_take(&lines) : NULL;
}

const char *muster_trainer_nccl(const struct muster_trainer *t)
{
    return t->nccl_lines;
}
