/* apart.c - see building.h. A guess must not cry wolf: a command that cannot be read counts as one world. */
#include "launcher/local/manifest/building.h"

#include <string.h>

#include "launcher/local/job/python_shim.h"
#include "launcher/local/pod/pod_command.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"

/* The world in a pod's command: from a flag, a variable, or not given. */
struct world {
    bool launched; /* by a launcher that forms worlds */
    bool alone;
    char why[80];
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_one_node(const char *nodes)
{
    return !strcmp(nodes, "1") || !strcmp(nodes, "1:1");
}

/* The index after the words that start a launcher; 0: there is none. */
static size_t find_launcher(char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = last_part(words[i]);
        if (!strcmp(name, "torchrun"))
            return i + 1;
        bool ours = i + 1 < count && (!strcmp(words[i + 1], "run") || !strcmp(words[i + 1], "launch"));
        if (ours && (!strcmp(name, "muster") || i == 0))
            return i + 2;
        if (python_shim_subcommand(words[i]))
            return i + 1;
    }
    return 0;
}

/* The value of --nnodes before the program, or NULL. */
static const char *nnodes_flag(char *const *words, size_t count, bool *standalone)
{
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        if (!strcmp(words[i], "--") || (length > 3 && !strcmp(words[i] + length - 3, ".py")))
            break;
        *standalone |= !strcmp(words[i], "--standalone");
        if (!strncmp(words[i], "--nnodes=", 9))
            found = words[i] + 9;
        else if (!strcmp(words[i], "--nnodes") && i + 1 < count)
            found = words[i + 1];
    }
    return found;
}

static void read_world(const struct local_pod *pod, char *const *words, size_t count, struct world *world)
{
    size_t at = find_launcher(words, count);
    bool standalone = false;
    if (!at || at > count)
        return;
    const char *flag = nnodes_flag(words + at, count - at, &standalone);
    const char *variable = text_list_value(pod->env, "PET_NNODES");
    world->launched = true;
    if (standalone)
        (void)snprintf(world->why, sizeof world->why, "--standalone");
    else if (flag && is_one_node(flag))
        (void)snprintf(world->why, sizeof world->why, "--nnodes=%s", flag);
    else if (!flag && variable && is_one_node(variable))
        (void)snprintf(world->why, sizeof world->why, "PET_NNODES=%s", variable);
    else if (!flag && !variable && !text_list_value(pod->env, "WORLD_SIZE"))
        (void)snprintf(world->why, sizeof world->why, "neither --nnodes nor PET_NNODES");
    world->alone = world->why[0] != 0;
}

/* The words of `sh -c TEXT` as far as they are plain; of any other command its own. */
static void read_pod(const struct local_pod *pod, struct world *world)
{
    static const char *const shells[] = {"sh", "bash", "dash"};
    size_t count = 0;
    scope_text_list words = {0};
    *world = (struct world){0};
    while (pod->command && pod->command[count])
        count++;
    bool shell = false;
    for (size_t i = 0; count > 2 && i < sizeof shells / sizeof *shells; i++)
        shell |= !strcmp(last_part(pod->command[0]), shells[i]) && pod->command[1][0] == '-';
    if (!shell)
        read_world(pod, pod->command, count, world);
    else if (pod_command_split(pod->command[2], &words, NULL) == 0)
        read_world(pod, words.items, words.count, world);
}

int apart_check(struct local_job *job, const char *file, struct problems *problems)
{
    int launched = 0;
    struct world world, first = {0};
    for (int i = 0; i < job->pod_count; i++) {
        read_pod(&job->pods[i], &world);
        if (world.launched && !world.alone)
            return 0;
        if (world.launched && !launched++)
            first = world;
    }
    if (launched < 2)
        return 0;
    problems_add(problems, PROBLEM_WARNING, file, NULL, NULL,
                 "%s %.63s: each of its %d pods forms a world of its own (%s), so that %d models are trained "
                 "apart and none of them by all pods; %s",
                 local_kind_name(job->kind), job->name, launched, first.why, launched,
                 job->kind == LOCAL_PYTORCHJOB || job->kind == LOCAL_TRAINJOB
                     ? "leave it out: the pods' PET_NNODES and address then make one world of them"
                     : "set PET_NNODES to the number of pods and PET_MASTER_ADDR to the first one's name");
    job->apart = mem_printf("its %d pods are %d worlds apart (%s): nothing was trained together", launched,
                            launched, first.why);
    return job->apart ? 0 : -1;
}
