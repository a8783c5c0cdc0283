/* worker_command.c - see worker_command.h. */
#include "launcher/process/worker_command.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "launcher/process/spawn.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text_list.h"
#include "proto/env_names.h"
#include "proto/visible_devices.h"

/* --- argv --- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

enum program_kind program_kind_of(const struct run_config *config)
{
    if (config->no_python)
        return PROGRAM_EXECUTABLE;
    if (config->module)
        return PROGRAM_MODULE;
    static const char *const python[] = {".py", ".pyc", ".pyz", ".pyw"};
    for (size_t i = 0; i < sizeof python / sizeof *python; i++)
        if (ends_with(config->program, python[i]))
            return PROGRAM_PYTHON;
    return PROGRAM_EXECUTABLE;
}

/* The length of "$local_rank" or "${local_rank}" at text, 0 if it is neither. */
static size_t rank_macro(const char *text)
{
    static const char braced[] = "${local_rank}", bare[] = "$local_rank";
    if (!strncmp(text, braced, sizeof braced - 1))
        return sizeof braced - 1;
    size_t length = sizeof bare - 1;
    if (strncmp(text, bare, length))
        return 0;
    bool longer = isalnum((unsigned char)text[length]) || text[length] == '_'; /* another, longer name */
    return longer ? 0 : length;
}

char *worker_command_argument(const char *argument, int local_rank)
{
    scope_buffer out = {0};
    for (const char *at = argument; *at;) {
        size_t plain = strcspn(at, "$"), macro = rank_macro(at + plain);
        buffer_append(&out, at, plain);
        at += plain;
        if (macro) {
            buffer_printf(&out, "%d", local_rank);
            at += macro;
        } else if (*at) { /* a lone $, or $$ for one */
            buffer_append(&out, "$", 1);
            at += at[1] == '$' ? 2 : 1;
        }
    }
    return buffer_take(&out);
}

const char *worker_command_interpreter(const struct run_config *config, const char *asked)
{
    return asked && *asked ? asked : config->interpreter ? config->interpreter : "python3";
}

static int build_argv(const struct run_config *config, enum program_kind kind, char *const *inherited,
                      int local_rank, struct text_list *argv)
{
    const char *python = worker_command_interpreter(config, text_list_value(inherited, ENV_PYTHON_EXEC));
    if (kind != PROGRAM_EXECUTABLE &&
        (text_list_take(argv, mem_strdup(python)) < 0 || text_list_take(argv, mem_strdup("-u")) < 0))
        return -1;
    if (kind == PROGRAM_MODULE && text_list_take(argv, mem_strdup("-m")) < 0)
        return -1;
    if (text_list_take(argv, mem_strdup(config->program)) < 0)
        return -1;
    if (config->command == COMMAND_LAUNCH && !config->use_env &&
        text_list_take(argv, mem_printf("--local-rank=%d", config->virtual_local_rank ? 0 : local_rank)) < 0)
        return -1;
    for (char *const *argument = config->arguments; argument && *argument; argument++)
        if (text_list_take(argv, worker_command_argument(*argument, local_rank)) < 0)
            return -1;
    return 0;
}

/* --- the environment --- */

int worker_command_omp_threads(const struct run_config *config, char *const *inherited, int cores)
{
    if (config->nproc_per_node < 2 || text_list_value(inherited, ENV_OMP_NUM_THREADS))
        return 0;
    int threads = cores / config->nproc_per_node;
    return threads > 0 ? threads : 1;
}

/* value: NULL means unset */
static int set_text(struct text_list *overlay, const char *name, const char *value)
{
    value = value ? value : "";
    size_t front = strlen(name), back = strlen(value) + 1;
    char *entry = mem_realloc(NULL, front + 1 + back, 1);
    if (entry) { /* a printf takes three times as long, and this is once for each variable of each worker */
        memcpy(entry, name, front);
        entry[front] = '=';
        memcpy(entry + front + 1, value, back);
    }
    return text_list_take(overlay, entry);
}

static int set_number(struct text_list *overlay, const char *name, long long value)
{
    char digits[24], *at = digits + sizeof digits; /* 19 digits and a sign */
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    for (*--at = '\0'; rest || !*at; rest /= 10)
        *--at = (char)('0' + rest % 10);
    if (value < 0)
        *--at = '-';
    return set_text(overlay, name, at);
}

/* value unless the user has set the variable, even to an empty text */
static int set_unless(struct text_list *overlay, char *const *inherited, const char *name, const char *value)
{
    return text_list_value(inherited, name) ? 0 : set_text(overlay, name, value);
}

struct place {
    const struct run_config *config;
    const struct membership_world *world;
    char *const *inherited;
    int local_rank, cores;
    const char *agent_id, *error_file;
};

static int set_world(const struct place *p, struct text_list *overlay)
{
    const struct membership_world *w = p->world;
    const struct {
        const char *name;
        long long value;
    } numbers[] = {
        {ENV_WORLD_SIZE, w->world_size},
        {ENV_LOCAL_WORLD_SIZE, p->config->nproc_per_node},
        {ENV_GROUP_RANK, w->group_rank},
        {ENV_GROUP_WORLD_SIZE, w->group_world_size},
        {ENV_ROLE_WORLD_SIZE, w->role_world_size},
        {ENV_MASTER_PORT, w->master_port},
        {ENV_RESTART_COUNT, w->restart_count},
        {ENV_MAX_RESTARTS, p->config->max_restarts},
        {ENV_ROUND, w->id.round},
        {ENV_HEARTBEAT_FD, SPAWN_EXTRA_FD},
        {ENV_NOTICE_FD, SPAWN_EXTRA_FD + 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (set_number(overlay, numbers[i].name, numbers[i].value) < 0)
            return -1;
    if (p->config->secret_file && set_number(overlay, ENV_STORE_KEY_FD, SPAWN_EXTRA_FD + 2) < 0)
        return -1;
    if (p->config->mpi &&
        (set_number(overlay, ENV_PMI_FD, SPAWN_EXTRA_FD + 2 + (p->config->secret_file != NULL)) < 0 ||
         set_number(overlay, ENV_PMI_SIZE, w->world_size) < 0 ||
         set_number(overlay, ENV_MPI_LOCAL_RANKS, p->config->nproc_per_node) < 0))
        return -1;
    char nodes[32];
    (void)snprintf(nodes, sizeof nodes, "%d:%d", p->config->min_nodes, p->config->max_nodes); /* fits */
    return set_text(overlay, ENV_NNODES, nodes) < 0 ? -1 : set_text(overlay, ENV_MASTER_ADDR, w->master_addr);
}

/* The GPU of a worker with --virtual-local-rank: its entry of the list, or its number if there is no list. */
static int set_own_gpu(const struct place *p, struct text_list *overlay)
{
    const char *entry = text_list_value(p->inherited, ENV_CUDA_VISIBLE_DEVICES);
    if (!entry)
        return set_number(overlay, ENV_CUDA_VISIBLE_DEVICES, p->local_rank);
    size_t length = 0;
    entry = visible_devices_entry(entry, p->local_rank, &length); /* config_resolve has counted them */
    return text_list_take(overlay,
                          mem_printf("%s=%.*s", ENV_CUDA_VISIBLE_DEVICES, (int)length, entry ? entry : ""));
}

/* The variables that differ between the workers of a round: always as many. */
static int set_own(const struct place *p, struct text_list *overlay)
{
    const bool virtual = p->config->virtual_local_rank;
    if (set_number(overlay, ENV_RANK, p->world->rank_base + p->local_rank) < 0 ||
        set_number(overlay, ENV_LOCAL_RANK, virtual ? 0 : p->local_rank) < 0 ||
        set_number(overlay, ENV_ROLE_RANK, p->world->role_rank_base + p->local_rank) < 0 ||
        set_text(overlay, ENV_ERROR_FILE, p->error_file ? p->error_file : "") < 0)
        return -1;
    if (p->config->mpi && (set_number(overlay, ENV_PMI_RANK, p->world->rank_base + p->local_rank) < 0 ||
                           set_number(overlay, ENV_MPI_LOCAL_RANK, p->local_rank) < 0))
        return -1;
    return virtual ? set_own_gpu(p, overlay) : 0;
}

static int set_texts(const struct place *p, struct text_list *overlay)
{
    int threads = worker_command_omp_threads(p->config, p->inherited, p->cores);
    if (threads > 0 && set_number(overlay, ENV_OMP_NUM_THREADS, threads) < 0)
        return -1;
    if (set_text(overlay, ENV_ROLE_NAME, p->config->role) < 0 ||
        set_text(overlay, ENV_RUN_ID, p->config->rdzv_id) < 0 ||
        set_text(overlay, ENV_USE_AGENT_STORE,
                 p->config->worker_store == WORKER_STORE_AGENT ? "True" : "False") < 0 ||
        set_text(overlay, ENV_SIGNALS_TO_HANDLE, p->config->signals_to_handle) < 0 ||
        set_text(overlay, ENV_AGENT_ID, p->agent_id) < 0)
        return -1;
    static const char *const ones[] = {ENV_ASYNC_ERROR_HANDLING, ENV_PYTHONUNBUFFERED,
                                       ENV_PYTHONFAULTHANDLER};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        if (set_unless(overlay, p->inherited, ones[i], "1") < 0)
            return -1;
    return 0;
}

/* Whether entry sets a variable that overlay sets too. */
static bool is_overlaid(const struct text_list *overlay, const char *entry)
{
    size_t name = strcspn(entry, "=") + 1;
    for (size_t i = 0; i < overlay->count; i++)
        if (overlay->items[i][0] == entry[0] && !strncmp(overlay->items[i], entry, name))
            return true;
    return false;
}

/* Variables of the agent alone: the path of the job's secret; descriptors that this job's workers do not
 * have; with --mpi, another process manager that started this agent. */
static bool is_withheld(const struct run_config *config, const char *entry)
{
    static const char *const managers[] = {"PMI_", "PMIX_", "HYDI_CONTROL_FD="};
    for (size_t i = 0; config->mpi && i < sizeof managers / sizeof *managers; i++)
        if (!strncmp(entry, managers[i], strlen(managers[i])))
            return true;
    static const char *const names[] = {
        "MUSTER_SECRET_FILE=", "MUSTER_REQUIRE_AUTH=", "MUSTER_STORE_KEY_FD="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (entry[0] == names[i][0] && !strncmp(entry, names[i], strlen(names[i])))
            return true;
    return false;
}

/* The agent's environment without the contract's variables, then the contract's: the worker's own, *own is
 * the first of them, then the world's, then the variables that are the same in every round. */
static int build_environment(const struct place *p, struct text_list *envp, size_t *own, size_t *same)
{
    struct text_list overlay = {0};
    int result = set_own(p, &overlay) < 0 || set_world(p, &overlay) < 0 ? -1 : 0;
    *same = overlay.count;
    if (result == 0)
        result = set_texts(p, &overlay);
    for (size_t i = 0; result == 0 && p->inherited && p->inherited[i]; i++)
        if (!is_overlaid(&overlay, p->inherited[i]) && !is_withheld(p->config, p->inherited[i]))
            result = text_list_take(envp, mem_strdup(p->inherited[i]));
    *own = envp->count;
    *same += *own;
    for (size_t i = 0; i < overlay.count; i++) /* each is replaced, or left out */
        if (result == 0)
            result = text_list_take(envp, overlay.items[i]);
        else
            mem_free(overlay.items[i]);
    mem_free(overlay.items);
    return result;
}

int worker_command_build(const struct run_config *config, const struct membership_world *world,
                         int local_rank, enum program_kind kind, char *const *inherited, int cores,
                         const char *agent_id, const char *error_file, struct worker_command *command,
                         struct muster_error *err)
{
    struct place place = {config, world, inherited, local_rank, cores, agent_id, error_file};
    struct text_list argv = {0}, envp = {0};
    size_t own = 0, same = 0;
    if (build_argv(config, kind, inherited, local_rank, &argv) < 0 ||
        build_environment(&place, &envp, &own, &same) < 0) {
        text_list_free(&argv);
        text_list_free(&envp);
        return error_set(err, MUSTER_E_NOMEM, "no memory for the command of local rank %d", local_rank);
    }
    *command =
        (struct worker_command){argv.items, envp.items, local_rank, world->rank_base + local_rank, own};
    return 0;
}

int worker_command_template(const struct run_config *config, enum program_kind kind, char *const *inherited,
                            int cores, const char *agent_id, struct worker_command *command,
                            struct muster_error *err)
{
    const struct membership_world none = {0};
    struct place place = {config, &none, inherited, 0, cores, agent_id, NULL};
    scope_text_list argv = {0}, envp = {0};
    size_t own = 0, same = 0;
    if (build_argv(config, kind, inherited, 0, &argv) < 0 ||
        build_environment(&place, &envp, &own, &same) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the template's command");
    for (size_t i = own; i < same; i++)
        mem_free(envp.items[i]);
    for (size_t i = same; i <= envp.count; i++) /* and the NULL */
        envp.items[own + i - same] = envp.items[i];
    *command = (struct worker_command){take_pointer(&argv.items), take_pointer(&envp.items), 0, 0, own};
    return 0;
}

int worker_command_change(const struct run_config *config, const struct membership_world *world,
                          int local_rank, enum program_kind kind, char *const *inherited,
                          const char *error_file, struct worker_command *command, struct muster_error *err)
{
    struct place place = {.config = config,
                          .world = world,
                          .inherited = inherited,
                          .local_rank = local_rank,
                          .error_file = error_file};
    scope_text_list argv = {0}, own = {0};
    if (build_argv(config, kind, inherited, local_rank, &argv) < 0 || set_own(&place, &own) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the command of local rank %d", local_rank);
    char **argv_before = command->argv;
    command->argv = argv.items;
    argv.items = argv_before;
    for (size_t i = 0; i < own.count; i++) {
        char *before = command->envp[command->own + i];
        assert(before); /* as many as there were */
        command->envp[command->own + i] = own.items[i];
        own.items[i] = before;
    }
    command->local_rank = local_rank;
    command->rank = world->rank_base + local_rank;
    return 0;
}

void worker_command_free(struct worker_command *command)
{
    if (!command)
        return;
    text_list_free_items(command->argv);
    text_list_free_items(command->envp);
    *command = (struct worker_command){0};
}

/* --- --dry-run --- */

static bool is_inherited(char *const *inherited, const char *entry)
{
    for (size_t i = 0; inherited && inherited[i]; i++)
        if (!strcmp(inherited[i], entry))
            return true;
    return false;
}

int worker_command_print(const struct worker_command *command, char *const *inherited, struct buffer *out)
{
    buffer_printf(out, "worker %d (local rank %d)\n ", command->rank, command->local_rank);
    for (char **argument = command->argv; *argument; argument++) {
        buffer_text(out, " ");
        buffer_shell_word(out, *argument);
    }
    buffer_text(out, "\n");
    for (char **entry = command->envp; *entry; entry++) {
        if (is_inherited(inherited, *entry))
            continue;
        size_t name = strcspn(*entry, "=");
        if (!(*entry)[name])
            continue; /* no variable */
        buffer_printf(out, "    %.*s=", (int)name, *entry);
        buffer_shell_word(out, *entry + name + 1);
        buffer_text(out, "\n");
    }
    return out->failed ? -1 : 0;
}

int worker_command_print_json(const struct worker_command *command, char *const *inherited,
                              struct buffer *out)
{
    const char *comma = "";
    buffer_printf(out, "{\"rank\": %d, \"local_rank\": %d, \"argv\": [", command->rank, command->local_rank);
    for (char **argument = command->argv; *argument; argument++, comma = ", ") {
        buffer_text(out, comma);
        buffer_json_string(out, *argument);
    }
    buffer_text(out, "], \"env\": {");
    comma = "";
    for (char **entry = command->envp; *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (is_inherited(inherited, *entry) || !(*entry)[length])
            continue;
        scope_free char *name = mem_strndup(*entry, length);
        if (!name)
            out->failed = true;
        buffer_text(out, comma);
        buffer_json_string(out, name);
        buffer_text(out, ": ");
        buffer_json_string(out, *entry + length + 1);
        comma = ", ";
    }
    return buffer_text(out, "}");
}
