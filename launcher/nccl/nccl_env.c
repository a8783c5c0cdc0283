/* nccl_env.c - see nccl_env.h. */
#include "launcher/nccl/nccl_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/host/describe_host.h"
#include "launcher/host/machine.h"
#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text_list.h"
#include "proto/env_names.h"
#include "runtime/nccl/doctor/doctor.h"
#include "runtime/nccl/files/description_json.h"
#include "runtime/nccl/read/reader.h"

enum { FILE_LIMIT = 4 << 20 };

static const int64_t nvml_patience_ns = 5 * NS_PER_S;

/* --- reading --- */

static int read_policy(const char *path, struct nccl_env *tune, struct muster_error *err)
{
    scope_buffer text = {0};
    if (!path || !*path)
        return 0;
    if (io_read_file(path, FILE_LIMIT, &text, err) < 0 ||
        policy_parse(path, text.data ? text.data : "", text.length, &tune->policy, err) < 0)
        return error_wrap(err, "--nccl-policy");
    return 0;
}

/* Workers need a GPU each if there are any: this detects a node that has lost some. */
static int64_t gpus_wanted(const struct run_config *config)
{
    return !strcmp(config->nproc, "gpu") || nvml_probe_has_driver() ? config->nproc_per_node : -1;
}

static bool policy_names_gpus(const struct policy *policy)
{
    for (int i = 0; i < policy->count; i++)
        if (policy->entries[i].gpu)
            return true;
    return false;
}

static int read_machine(const struct run_config *config, char *const *environment, struct nvml_probe *nvml,
                        struct nccl_env *tune, struct muster_error *err)
{
    char host[MACHINE_NAME_SIZE];
    machine_host_name(host);
    const struct reader_options options = {
        .root = "",
        .environment = environment,
        .home = getenv("HOME"),
        .host = host,
        .master = config->max_nodes > 1 ? config->master_addr : NULL,
        .nnodes = config->max_nodes,
        .local_workers = config->nproc_per_node,
        .gpus_wanted = gpus_wanted(config),
    };
    if (reader_read(&options, &tune->machine, err) < 0)
        return -1;
    /* Only if the result matters: it can take seconds. A single worker shares its GPU with no other. */
    bool counts = tune->mode == NCCL_ENV_EXPLAIN ||
                  (tune->mode == NCCL_ENV_ON && (config->nproc_per_node > 1 || config->max_nodes > 1));
    if (!(nvml_probe_has_driver() && (counts || policy_names_gpus(&tune->policy))))
        return 0;
    return nvml_probe_describe(nvml, nvml_patience_ns, &tune->machine, err) < 0
               ? -1
               : reader_distances("", &tune->machine, err);
}

/* Sources read at a launch, and for --pre-flight also the disk, the kernel log and every device. */
static int examine_machine(const struct run_config *config, char *const *environment, struct nvml_probe *nvml,
                           struct nccl_env *tune, struct muster_error *err)
{
    const struct describe_request request = {
        .master = config->max_nodes > 1 ? config->master_addr : NULL,
        .log_dir = config->log_dir && *config->log_dir && strcmp(config->log_dir, "/dev/null")
                       ? config->log_dir
                       : NULL,
        .nnodes = config->max_nodes,
        .local_workers = config->nproc_per_node,
        .gpus_wanted = gpus_wanted(config),
        .nvml = nvml,
        .nvml_patience_ns = nvml_patience_ns,
        .environment = environment,
    };
    return describe_host(&request, &tune->machine, err);
}

/* Another machine's description in place of this one's, with its route to its master. The job, its
 * settings and its files are this run's. */
static int replay(const char *path, struct nccl_env *tune, struct muster_error *err)
{
    scope_buffer text = {0};
    struct description *own = &tune->machine, other;
    if (io_read_file(path, FILE_LIMIT, &text, err) < 0 ||
        description_read(path, text.data ? text.data : "", text.length, &other, err) < 0)
        return error_wrap(err, "%s", ENV_DESCRIPTION);
    other.nnodes = own->nnodes;
    other.local_workers = own->local_workers;
    other.gpus_wanted = other.gpu_count > 0 ? own->local_workers : own->gpus_wanted;
    memcpy(other.master, own->master, sizeof other.master);
    memcpy(other.log_dir, own->log_dir, sizeof other.log_dir);
    if (*own->node_pool)
        memcpy(other.node_pool, own->node_pool, sizeof other.node_pool);
    mem_free(other.settings);
    other.settings = take_pointer(&own->settings);
    other.setting_count = own->setting_count;
    own->setting_count = 0;
    description_free(own);
    *own = other;
    return 0;
}

static bool can_matter(const struct run_config *config, const struct nccl_env *tune)
{
    bool rules = tune->mode != NCCL_ENV_OFF && (config->max_nodes > 1 || nvml_probe_has_driver());
    return rules || tune->mode == NCCL_ENV_EXPLAIN || tune->policy.count > 0;
}

int nccl_env_read(const struct run_config *config, char *const *environment, bool always,
                  struct nvml_probe *nvml, struct nccl_env *tune, struct muster_error *err)
{
    const char *file = text_list_value(environment, ENV_DESCRIPTION);
    *tune = (struct nccl_env){.mode = (enum tune_mode)config->nccl_tune};
    if (read_policy(config->nccl_policy, tune, err) < 0)
        return -1;
    bool replays = file && *file;
    if (!always && !replays && !config->pre_flight && !can_matter(config, tune))
        return 0;
    if ((config->pre_flight && !replays ? examine_machine : read_machine)(config, environment, nvml, tune,
                                                                          err) < 0)
        return -1;
    tune->looked = true;
    tune->replayed = replays;
    return replays ? replay(file, tune, err) : 0;
}

void nccl_env_free(struct nccl_env *tune)
{
    decision_list_free(&tune->decisions);
    policy_free(&tune->policy);
    description_free(&tune->machine);
    mem_free(tune->unfit);
    tune->unfit = NULL;
    tune->looked = false;
}

/* --- deciding --- */

struct nccl_env_place nccl_env_place_before(const struct run_config *config)
{
    const char *address =
        config->max_nodes > 1 && address_is_numeric(config->master_addr) ? config->master_addr : NULL;
    return (struct nccl_env_place){config->max_nodes, address, address && resolver_is_local(address), NULL};
}

int nccl_env_decide(struct nccl_env *tune, const struct nccl_env_place *place, struct muster_error *err)
{
    struct description *machine = &tune->machine;
    if (!tune->looked)
        return 0;
    decision_list_free(&tune->decisions);
    machine->nnodes = place->nnodes;
    (void)snprintf(machine->log_dir, sizeof machine->log_dir, "%s", place->log_dir ? place->log_dir : "");
    if (place->master_address && !tune->replayed) {
        (void)snprintf(machine->master_address, sizeof machine->master_address, "%s", place->master_address);
        reader_route(machine, place->master_address, place->here);
    }
    return tune->mode == NCCL_ENV_OFF ? decide_policy(machine, &tune->policy, &tune->decisions, err)
                                      : decide(machine, &tune->policy, &tune->decisions, err);
}

int nccl_env_check(const struct nccl_env *tune, struct muster_error *err)
{
    const struct decision *forbidden = decision_first(&tune->decisions, DECISION_FORBIDDEN);
    if (!forbidden)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "%s=%.100s: %s", forbidden->name, forbidden->value,
                     forbidden->reason);
}

char **nccl_env_environment(const struct nccl_env *tune, char *const *inherited, struct muster_error *err)
{
    struct text_list list = {0};
    int result = 0;
    for (size_t i = 0; result == 0 && inherited && inherited[i]; i++)
        result = text_list_take(&list, mem_strdup(inherited[i]));
    for (int i = 0; result == 0 && i < tune->decisions.count; i++)
        if (tune->decisions.items[i].kind == DECISION_SET)
            result = text_list_set(&list, tune->decisions.items[i].name, tune->decisions.items[i].value);
    if (result == 0 && !list.items) /* nothing at all: a list all the same */
        list.items = mem_calloc(1, sizeof *list.items);
    if (result == 0 && list.items)
        return list.items;
    text_list_free(&list);
    (void)error_set(err, MUSTER_E_NOMEM, "no memory for the workers' environment");
    return NULL;
}

int nccl_env_json(const struct nccl_env *tune, struct buffer *out)
{
    buffer_text(out, "{\"decisions\": ");
    (void)decision_json(&tune->decisions, out);
    buffer_text(out, ",\n\"description\": ");
    (void)description_write(&tune->machine, out);
    return buffer_text(out, "}\n"); /* out remembers a failure */
}

/* --- --pre-flight --- */

static int say(const struct doctor_report *report, struct run_config *config, const struct log_sink *log,
               struct muster_error *err)
{
    for (int i = 0; i < report->count; i++) {
        const struct doctor_row *row = &report->rows[i];
        if (row->status != DOCTOR_WARNING && row->status != DOCTOR_UNFIT)
            continue;
        log_write(log, row->status == DOCTOR_UNFIT ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING,
                  "pre-flight: %s: %s%s%s", row->name, row->found, *row->cure ? "; " : "", row->cure);
        if (config_warn(config, err, "pre-flight: %s: %s%s%s", row->name, row->found, *row->cure ? "; " : "",
                        row->cure) < 0)
            return -1;
    }
    return 0;
}

int pre_flight_examine(struct run_config *config, const struct log_sink *log, struct nccl_env *tune,
                       struct muster_error *err)
{
    struct doctor_report __attribute__((cleanup(doctor_report_free))) report = {0};
    scope_buffer why = {0};
    if (!config->pre_flight)
        return 0;
    if (doctor_examine(&tune->machine, &report, err) < 0 || say(&report, config, log, err) < 0)
        return -1;
    if (doctor_verdict(&report) != DOCTOR_UNFIT)
        return 0;
    if (doctor_summary(&report, &why) == 0)
        tune->unfit = buffer_take(&why);
    return tune->unfit ? 0
                       : error_set(err, MUSTER_E_NOMEM, "no memory for the result of the pre-flight check");
}
