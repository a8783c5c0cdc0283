/* launcher_config_walk_test.c - random command lines in random environments on random machines: values
 * rejected and the errors, values taken, noted, warned of, and shown by muster env; one line a seed (walk.h).
 */
#include <stdio.h>
#include <string.h>

#include "launcher/config/config.h"
#include "launcher/config/node_identity.h"
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/slurm.h"
#include "runtime/nccl/decide/decide.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_environment.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"
#include "tests/unit/launcher/launcher_config_support.h"

enum { SEEDS = 400, LINES = 120 };

#define ID_OF_50  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define ID_OF_200 ID_OF_50 ID_OF_50 ID_OF_50 ID_OF_50

/* Values between bars; without any, the flag takes none. */
static const struct {
    const char *flag, *values;
} flags[] = {
    {"standalone", NULL},
    {"require-auth", NULL},
    {"secret-file", "/secret"},
    {"nnodes",
     "1|2|2|3|1:2|1:4|2:1|0|16384|16385|:2|2:|1:4:8|x|99999999999999999|000000000000002|0000000000000002"},
    {"node-rank", "0|1|2|3|16383|16384|-1"},
    {"nproc-per-node", "1|2|3|4|auto|cpu|gpu|0|4096|4097|x"},
    {"master-addr", "10.0.0.1|[::1]|[]|[|a/b|j-master-0|localhost|127.0.0.1|::1|127.x|128.0.0.1|localhost.x"},
    {"master-port", "0|1|29500|65535|65536|-1"},
    {"rdzv-backend", "static|c10d|c10d|etcd|etcd-v2|zeus"},
    {"rdzv-endpoint",
     "h:1|h:65535|h:65536|h:0|h|:1|[::1]|[::1]:5|::1|h:x|h:29400|a,b|a,|,|a,a|a:1,b:2,[::1]|localhost:1234"},
    {"rdzv-id", "none|job|7|a/b||" ID_OF_200 "|" ID_OF_200 "y"},
    {"rdzv-conf", "rank=0|rank=1,timeout=5|join_timeout=7|last_call_timeout=9|last_call_timeout=0|timeout=0|"
                  "rank=-1|x=y|read_timeout=3,close_timeout=4|rank|=|,|rank=1,|\"rank=1\"|'timeout=4'|"
                  "rank=x|join_timeout=1e3,timeout=2|rank=16384"},
    {"last-call-timeout", "0|1|60"},
    {"local-addr", "10.0.0.9|"},
    {"bind-addr", "10.0.0.9|::1||h"},
    {"port-range", "1-2|5-5|6-5|1-65535|1-65536|0-5|1:2|x-2|1-x|7|"},
    {"worker-store", "agent|worker|x"},
    {"max-restarts", "0|3|-1"},
    {"state-dir", "/state"},
    {"join-timeout", "1|600|0"},
    {"module", NULL},
    {"no-python", NULL},
    {"virtual-local-rank", NULL},
    {"use-env", NULL},
    {"numa-binding", "none|node|x"},
    {"shutdown-timeout", "0|5|30"},
    {"notice-timeout", "0|5|60"},
    {"hang-timeout", "0|5"},
    {"restart-grace", "0|5"},
    {"signals-to-handle", "SIGTERM|SIGTERM,SIGUSR1|SIGX,SIGY|SIGKILL|"},
    {"forward-signals", "SIGUSR1|SIGUSR2,SIGTERM|SIGX|"},
    {"log-dir", "/logs|/dev/null|"},
    {"redirects", "0|1|3|4|0:1|0:1,1:3|1:0|1:1|2:3|0:|0:4|4095:1|4096:1|0:1,|a:1|0:1;1:1|12"},
    {"tee", "0|2|3|0:2|1:1,2:2|3:0|0:1,0:2|0:"},
    {"event-log-handler", "null|console|./events|events"},
    {"local-ranks-filter", "0|0,1|1,3|x|0,|,"},
    {"duplicate-stdout-filters", "loss|a,b"},
    {"duplicate-stderr-filters", "loss|a,b"},
    {"log-line-prefix-template", "[${rank}]:|[${role_name}${local_rank}]|${x}|"},
    {"log-format", "text|timed|json|x"},
    {"log-max-size", "0|1M|10G|x"},
    {"log-keep", "0|3"},
    {"nccl-tune", "on|off|explain"},
    {"nccl-policy", "p.yaml"},
    {"pre-flight", "off|0|1"},
    {"exit-code", "first|torchrun"},
    {"termination-log", "/dev/termination-log|/t"},
    {"metrics-port", "0|9090|65536"},
    {"metrics-addr", "::|127.0.0.1|h"},
    {"output", "text|json"},
    {"monitor-interval", "1|5"},
    {"start-method", "fork|spawn"},
    {"dry-run", NULL},
};

static const struct {
    const char *name, *values;
} variables[] = {
    {"PET_NNODES", "1|2|3|1:2|x"},
    {"PET_NODE_RANK", "0|1|2"},
    {"PET_MASTER_ADDR", "j-master-0|j-worker-0|k-worker-0|10.0.0.1"},
    {"PET_MASTER_PORT", "0|23456"},
    {"PET_NPROC_PER_NODE", "1|2|gpu|auto"},
    {"PET_RDZV_BACKEND", "static|c10d|etcd"},
    {"PET_RDZV_ENDPOINT", "h:29400|h"},
    {"PET_RDZV_CONF", "rank=1|timeout=9"},
    {"PET_RDZV_ID", "job"},
    {"PET_STANDALONE", "0|1|x"},
    {"PET_MODULE", "0|1"},
    {"PET_REDIRECTS", "1|0:1"},
    {"PET_LOG_DIR", "/logs|"},
    {"PET_MAX_RESTARTS", "2"},
    {"MASTER_ADDR", "j-master-0|j-worker-0|localhost|127.0.0.1|::1|job.v1-master-0.ns|10.0.0.1"},
    {"MASTER_PORT", "1|23456|65535|65536|0|x"},
    {"WORLD_SIZE", "1|2|3|0|1000000|1000001"},
    {"RANK", "0|1|2|3|-1"},
    {"TORCHELASTIC_RUN_ID", "x"},
    {"JOB_COMPLETION_INDEX", "0|1|2|1000000|1000001|-1"},
    {"SLURM_STEP_NUM_NODES", "1|2|3"},
    {"SLURM_STEP_NUM_TASKS", "1|2|3"},
    {"SLURM_NODEID", "0|1|2"},
    {"SLURM_STEP_NODELIST", "n[1-2]|n[1-3]|a,b|n[08-10]|a,b.dom,c|["},
    {"SLURM_JOB_NODELIST", "n[1-2]|n[1-3]|a,b"},
    {"SLURMD_NODENAME", "n1|n2|n2.dom|a|b|b.x|x"},
    {"SLURM_JOB_ID", "0|7|5001|123456789|-1"},
    {"SLURM_STEP_ID", "0|3|-1|x"},
    {"OMP_NUM_THREADS", "1"},
    {"CUDA_VISIBLE_DEVICES", "0"},
    {"NCCL_DEBUG", "WARN"},
    {"MUSTER_SECRET_FILE", "/secret"},
    {"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
};

static const char *const hosts[] = {"j-worker-0",
                                    "j-worker-1",
                                    "j-worker-2",
                                    "j-master-0",
                                    "job.v1-worker-1.ns",
                                    "host",
                                    "x-worker-",
                                    "-worker-1",
                                    "worker-1",
                                    "j-1.svc",
                                    "j-0.svc",
                                    "j-2.svc",
                                    "j-1",
                                    "",
                                    "n1",
                                    "n2.dom",
                                    "j-worker-1000000",
                                    "b",
                                    "j-worker-999999",
                                    "-1.x",
                                    "j-1x.svc",
                                    "j-worker-12345678901234567"};

/* A value between the bars. */
static void pick_value(struct walk *walk, const char *values, char *out, size_t size)
{
    int64_t bars = 0;
    for (const char *at = values; *at; at++)
        bars += *at == '|';
    for (int64_t skip = walk_below(walk, bars + 1); skip > 0; skip--)
        values = strchr(values, '|') + 1;
    (void)snprintf(out, size, "%.*s", (int)strcspn(values, "|"), values);
}

static void random_machine(struct walk *walk, struct machine *machine)
{
    *machine = (struct machine){.cores = 1 + (int)walk_below(walk, 4), .gpus = (int)walk_below(walk, 4)};
    machine->gpus_named = walk_one_in(walk, 2);
    machine->mig = machine->gpus_named && walk_one_in(walk, 3) ? machine->gpus : 0;
    machine->random[0] = machine->random[1] = (uint64_t)walk_below(walk, 1000) << 40;
    (void)snprintf(machine->host_name, sizeof machine->host_name, "%s", walk_pick(walk, hosts));
    if (walk_one_in(walk, 2)) {
        strcpy(machine->full_name, walk_one_in(walk, 3) ? "" : machine->host_name);
        strcat(machine->full_name, *machine->full_name ? ".ns.svc" : "");
    }
    if (walk_one_in(walk, 6))
        (void)snprintf(machine->gpus_unknown, sizeof machine->gpus_unknown, "NVML did not answer");
}

static void saw_config(struct walk *walk, const struct parsed *p, const struct machine *machine, bool decided)
{
    static struct decision decisions[] = {
        {.kind = DECISION_SET, .name = "NCCL_A", .value = "1", .reason = "it is so", .rule = "a"},
        {.kind = DECISION_WARNED, .name = "NCCL_B", .reason = "it is not", .rule = "b"}};
    const struct decision_list list = {decisions, 2};
    const struct run_config *c = &p->config;
    scope_buffer shown = {0};
    assert_int_equal(config_print(c, machine, decided ? &list : NULL, &shown), 0);
    walk_saw_text(walk, shown.data);
    struct run_config as_json = *c; /* the texts stay the first one's */
    as_json.output = OUTPUT_JSON;
    buffer_clear(&shown);
    assert_int_equal(config_print(&as_json, machine, decided ? &list : NULL, &shown), 0);
    walk_saw_text(walk, shown.data);
    struct buffer full = {.limit = 1};
    assert_int_equal(config_print(c, machine, NULL, &full), -1);
    buffer_free(&full);
    walk_saw_text(walk, c->notes);
    walk_saw_text(walk, c->warnings);
    walk_saw_text(walk, c->program);
    walk_saw_text(walk, c->arguments ? c->arguments[0] : NULL);
    const int64_t numbers[] = {c->min_nodes,
                               c->max_nodes,
                               c->elastic,
                               c->node_rank,
                               c->wanted_rank,
                               c->nproc_per_node,
                               c->master_port,
                               c->first_port,
                               c->last_port,
                               (int64_t)c->stop_signals,
                               (int64_t)c->forwarded_signals,
                               c->cores,
                               c->rdzv_conf.rank,
                               c->termination_log_asked,
                               config_wants_log_directory(c),
                               config_wants_gpus(c, machine)};
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, c->full_name);
    for (int local = 0; local < 5; local++) {
        walk_saw_number(walk, config_streams(c->redirects, local));
        walk_saw_number(walk, config_streams(c->tee, local));
    }
}

struct input {
    enum config_command command;
    struct machine machine;
    char line[2400], environment[1000];
};

static void random_input(struct walk *walk, struct input *in)
{
    static const enum config_command commands[] = {COMMAND_RUN, COMMAND_RUN, COMMAND_RUN, COMMAND_LAUNCH,
                                                   COMMAND_ENV};
    char value[256];
    in->line[0] = in->environment[0] = '\0';
    random_machine(walk, &in->machine);
    for (int64_t i = walk_below(walk, 7); i > 0; i--) {
        size_t which = (size_t)walk_below(walk, sizeof flags / sizeof *flags), used = strlen(in->line);
        if (walk_one_in(walk, 3))
            which = (size_t)walk_below(walk, 14); /* flags of the world */
        if (flags[which].values)
            pick_value(walk, flags[which].values, value, sizeof value);
        (void)snprintf(in->line + used, sizeof in->line - used, "--%s%s%s ", flags[which].flag,
                       flags[which].values ? "=" : "", flags[which].values ? value : "");
    }
    strcat(in->line, walk_one_in(walk, 20) ? "" : walk_one_in(walk, 3) ? "./a b" : "train.py --x");
    for (int64_t i = walk_below(walk, 9); i > 0; i--) {
        size_t which = (size_t)walk_below(walk, sizeof variables / sizeof *variables),
               used = strlen(in->environment);
        if (walk_one_in(walk, 2)) { /* a Slurm step, or an older operator's pod */
            size_t first = walk_one_in(walk, 2) ? 14 : 20;
            which = first + (size_t)walk_below(walk, 8);
        }
        pick_value(walk, variables[which].values, value, sizeof value);
        (void)snprintf(in->environment + used, sizeof in->environment - used, "%s=%s ", variables[which].name,
                       value);
    }
    in->command = walk_pick(walk, commands);
}

/* Whether it was taken. */
static bool one_line(struct walk *walk)
{
    static struct input in;
    random_input(walk, &in);
    struct parsed *p = parse_as(in.command, in.line, in.environment, &in.machine);
    walk_saw_number(walk, p->result);
    walk_saw_text(walk, p->result ? p->err.text : NULL);
    if (p->result == 0 && !p->config.help)
        saw_config(walk, p, &in.machine, walk_one_in(walk, 4));
    else
        config_salvage(&p->config, fake_environment, in.environment);
    walk_saw_text(walk, p->config.termination_log);
    config_free(&p->config);
    return p->result == 0;
}

struct reference {
    struct input in;
    uint64_t digest; /* digest of the configuration; 0: not yet */
};

static int read_again(void *context)
{
    struct reference *reference = context;
    const struct input *in = &reference->in;
    struct walk walk = walk_begin(1);
    struct parsed *p = parse_as(in->command, in->line, in->environment, &in->machine);
    int result = p->result;
    if (result == 0) {
        scope_buffer shown = {0};
        result = config_print(&p->config, &in->machine, NULL, &shown);
        walk_saw_text(&walk, shown.data);
        walk_saw_text(&walk, p->config.notes);
        walk_saw_text(&walk, p->config.warnings);
        walk_saw_text(&walk, p->config.full_name);
    }
    config_free(&p->config);
    if (result == 0 && reference->digest)
        assert_true(walk.digest == reference->digest);
    else if (result == 0)
        reference->digest = walk.digest;
    return result;
}

/* A line is read as with memory, or not at all. */
static void without_memory(void **state)
{
    (void)state;
    struct walk walk = walk_begin(4);
    for (int taken = 0; taken < 150;) {
        static struct reference reference;
        reference.digest = 0;
        random_input(&walk, &reference.in);
        if (read_again(&reference) < 0)
            continue;
        taken++;
        faults_sweep_absorbed(read_again, &reference);
    }
}

static void random_lines_are_read_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        int taken = 0;
        for (int i = 0; i < LINES; i++)
            taken += one_line(&walk);
        buffer_printf(&text, "%llu: %d taken, %016llx\n", (unsigned long long)seed, taken,
                      (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/launcher/golden/config_walks.txt", &text);
}

/* A node's place by all that an environment may say, without the other settings. */
static void random_places_are_found_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static const char *const masters[] = {NULL, NULL, NULL, "j-master-0", "j-worker-0.ns", "10.0.0.1"};
        struct walk walk = walk_begin(seed);
        int places = 0;
        for (int i = 0; i < 2 * LINES; i++) {
            char environment[1000] = "", value[100];
            struct node_identity_found found;
            struct muster_error err = {0};
            size_t rule = (size_t)walk_below(&walk, 3),
                   first = rule == 0   ? 14
                           : rule == 1 ? 19
                                       : 20,
                   end = rule == 0   ? 18
                         : rule == 1 ? 20
                                     : 28;
            for (size_t which = first; which < end; which++) {
                size_t used = strlen(environment);
                pick_value(&walk, variables[which].values, value, sizeof value);
                if (!walk_one_in(&walk, 8))
                    (void)snprintf(environment + used, sizeof environment - used, "%s=%s ",
                                   variables[which].name, value);
            }
            if (walk_one_in(&walk, 12))
                strcat(environment, "TORCHELASTIC_RUN_ID=x ");
            struct node_identity_known known = {
                .nodes = rule == 0 ? 0 : (int)walk_below(&walk, 4),
                .master_addr = walk_pick(&walk, masters),
                .master_port = walk_one_in(&walk, 4) ? walk_below(&walk, 2) : -1,
                .host_name = walk_pick(&walk, hosts),
                .full_name = walk_one_in(&walk, 2) ? "" : walk_pick(&walk, hosts),
                .get = fake_environment,
                .context = environment};
            int result = node_identity_find(&known, &found, &err);
            walk_saw_number(&walk, result);
            walk_saw_text(&walk, err.text);
            walk_saw_text(&walk, found.source);
            walk_saw_number(&walk, found.nodes);
            walk_saw_number(&walk, found.node_rank);
            walk_saw_number(&walk, found.master_port);
            walk_saw_text(&walk, found.master_addr);
            walk_saw_text(&walk, found.job_id);
            places += result == 0 && *found.source;
        }
        buffer_printf(&text, "%llu: %d places, %016llx\n", (unsigned long long)seed, places,
                      (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/launcher/golden/place_walks.txt", &text);
}

/* Slurm's lists, mostly well formed. */
static void random_host_lists_are_read_as_they_were(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "n",          "gpu-", "[1-3]", "[08-11]", "[1,3]", "[7]",        ",",        "[2-1]",
        "[",          "]",    "[1-",   "[,]",     "a.b",   "[1-2][3-4]", "[01,5-6]", "[999999-1000000]",
        "[1-1000001]"};
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        for (int i = 0; i < LINES; i++) {
            char list[400] = "n", host[40];
            for (int64_t n = walk_below(&walk, 6); n > 0; n--)
                strcat(list, parts[walk_below(&walk, walk_one_in(&walk, 3) ? 17 : 7)]);
            struct muster_error err = {0};
            int64_t count = slurm_host_count(list, &err);
            walk_saw_number(&walk, count);
            walk_saw_text(&walk, err.text);
            for (int64_t index = -1; index <= (count < 30 ? count : 30); index++) {
                size_t size = walk_one_in(&walk, 4) ? 3 + (size_t)walk_below(&walk, 6) : sizeof host;
                host[0] = '\0';
                error_clear(&err);
                int result = slurm_host_at(list, index, host, size, &err);
                walk_saw_number(&walk, result);
                walk_saw_text(&walk, result == 0 ? host : err.text);
            }
            if (count > 0)
                walk_saw_number(&walk, slurm_host_at(list, count - 1, host, sizeof host, &err));
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/launcher/golden/host_list_walks.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_lines_are_read_as_they_were),
                                       cmocka_unit_test(without_memory),
                                       cmocka_unit_test(random_places_are_found_as_they_were),
                                       cmocka_unit_test(random_host_lists_are_read_as_they_were)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
