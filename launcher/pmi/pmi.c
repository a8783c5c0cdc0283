/* pmi.c - the state machine of pmi.h: requests of ranks, exchanges between nodes. */
#include "launcher/pmi/pmi.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/pmi/pmi_line.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

static const char mapping_key[] = "PMI_process_mapping";

struct pmi_rank {
    enum pmi_state state;
    struct buffer line, replies;
    bool again;  /* it asked for init after finalize */
    bool spawns; /* between mcmd=spawn and endcmd */
    struct pmi_note note;
};

struct pmi_pair {
    char *key, *value;
};

struct pmi {
    struct pmi_place place;
    struct pmi_rank *ranks; /* [local] */
    int *counts;            /* [nodes] ranks of each; 0: unknown yet */
    void *pairs;            /* tsearch tree of struct pmi_pair by key */
    size_t own_bytes;       /* bytes of keys of this node, in all exchanges */
    struct buffer own;      /* for the next exchange */
    int exchanges;          /* that are done */
    bool under_way;         /* pmi_due_exchange was asked for the next one */
    bool reports;           /* a rank of this node is missing: the next exchange says so */
};

#define PMI_STATE_TEXT(symbol, text) [symbol] = (text),
static const char *const state_texts[] = {PMI_STATES(PMI_STATE_TEXT)};

const char *pmi_state_text(enum pmi_state state)
{
    return state_texts[state];
}

/* --- keys --- */

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct pmi_pair *)a)->key, ((const struct pmi_pair *)b)->key);
}

static void free_pair(void *item)
{
    struct pmi_pair *pair = item;
    mem_free(pair->key);
    mem_free(pair->value);
    mem_free(pair);
}

static const char *find_value(const struct pmi *pmi, const char *key)
{
    const struct pmi_pair wanted = {.key = (char *)key};
    struct pmi_pair *const *found = tfind(&wanted, &pmi->pairs, compare_pairs);
    return found ? (*found)->value : NULL;
}

/* A key that is there keeps its first value, as with the managers that MPI comes with. */
static int keep_pair(struct pmi *pmi, const char *key, const char *value)
{
    struct pmi_pair *pair = mem_calloc(1, sizeof *pair);
    if (!pair)
        return -1;
    pair->key = mem_strdup(key);
    pair->value = mem_strdup(value);
    struct pmi_pair *const *found =
        pair->key && pair->value ? tsearch(pair, &pmi->pairs, compare_pairs) : NULL;
    const bool kept = found && *found == pair;
    if (!kept)
        free_pair(pair);
    return found ? 0 : -1;
}

/* --- life --- */

/* The first line of a text names its node; the keys follow. */
static int begin_own(struct pmi *pmi)
{
    buffer_clear(&pmi->own);
    return buffer_printf(&pmi->own, "@%d %d %d\n", pmi->place.node, pmi->place.first, pmi->place.local);
}

struct pmi *pmi_create(const struct pmi_place *place, struct muster_error *err)
{
    struct pmi *pmi = mem_calloc(1, sizeof *pmi);
    if (pmi) {
        pmi->place = *place;
        pmi->ranks = mem_calloc((size_t)place->local, sizeof *pmi->ranks);
        pmi->counts = mem_calloc((size_t)place->nodes, sizeof *pmi->counts);
    }
    if (pmi && pmi->ranks && pmi->counts && begin_own(pmi) == 0)
        return pmi;
    pmi_destroy(pmi);
    (void)error_set(err, MUSTER_E_NOMEM, "no memory for the PMI of %d ranks", place->local);
    return NULL;
}

void pmi_destroy(struct pmi *pmi)
{
    if (!pmi)
        return;
    for (int i = 0; pmi->ranks && i < pmi->place.local; i++) {
        buffer_free(&pmi->ranks[i].line);
        buffer_free(&pmi->ranks[i].replies);
    }
    tdestroy(pmi->pairs, free_pair);
    buffer_free(&pmi->own);
    mem_free(pmi->ranks);
    mem_free(pmi->counts);
    mem_free(pmi);
}

struct buffer *pmi_replies(struct pmi *pmi, int local_rank)
{
    return &pmi->ranks[local_rank].replies;
}

enum pmi_state pmi_state_of(const struct pmi *pmi, int local_rank)
{
    return pmi->ranks[local_rank].state;
}

bool pmi_began_again(const struct pmi *pmi, int local_rank)
{
    return pmi->ranks[local_rank].again;
}

void pmi_leave(struct pmi *pmi, int local_rank)
{
    if (pmi->ranks[local_rank].state != PMI_FINALIZED)
        pmi->ranks[local_rank].state = PMI_GONE;
    buffer_clear(&pmi->ranks[local_rank].line);
}

struct pmi_note pmi_take_note(struct pmi *pmi)
{
    for (int i = 0; i < pmi->place.local; i++) {
        const struct pmi_note note = pmi->ranks[i].note;
        if (note.kind) {
            pmi->ranks[i].note = (struct pmi_note){0};
            return note;
        }
    }
    return (struct pmi_note){0};
}

/* --- requests --- */

/* One row a request: the states in which it is allowed, and its answer. */
struct request {
    const char *name;
    unsigned states; /* bits of enum pmi_state in which it is allowed */
    int (*answer)(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line);
};
#define IN(state)        (1U << (state))
#define ONCE_INITIALISED (IN(PMI_RUNS))
#define ANY_TIME         (IN(PMI_STARTED) | IN(PMI_RUNS) | IN(PMI_FINALIZED))

/* Ranks that called MPI_Init get their reply once the first exchange is done, and others when a barrier
 * opens. A rank that comes to MPI_Init later gets it at once. */
static int answer_waiting(struct pmi *pmi, bool opens)
{
    int result = 0;
    for (int i = 0; i < pmi->place.local; i++) {
        struct pmi_rank *rank = &pmi->ranks[i];
        const char *reply = rank->state == PMI_GREETS
                                ? "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
                            : opens && rank->state == PMI_IN_BARRIER ? "cmd=barrier_out rc=0\n"
                                                                     : NULL;
        if (!reply)
            continue;
        rank->state = PMI_RUNS;
        if (buffer_text(&rank->replies, reply) < 0)
            result = -1;
    }
    return result;
}

static int answer_init(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    const char *version = pmi_line_get(line, "pmi_version");
    if (!version || strcmp(version, "1") != 0) {
        static const char *const refusal = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n";
        return buffer_text(&rank->replies, refusal);
    }
    rank->state = PMI_GREETS; /* the reply follows the first exchange */
    return pmi->exchanges ? answer_waiting(pmi, false) : 0;
}

static int answer_maxes(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)pmi;
    (void)line;
    return buffer_printf(&rank->replies, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n",
                         PMI_NAME_LIMIT, PMI_KEY_LIMIT, PMI_VALUE_LIMIT);
}

static int answer_appnum(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)pmi;
    (void)line;
    return buffer_text(&rank->replies, "cmd=appnum appnum=0 rc=0\n");
}

static int answer_name(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)line;
    return buffer_printf(&rank->replies, "cmd=my_kvsname kvsname=%s rc=0\n", pmi->place.name);
}

/* Processes cannot be added: there are as many as there ever will be. */
static int answer_universe(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)line;
    return buffer_printf(&rank->replies, "cmd=universe_size size=%d rc=0\n", pmi->place.world);
}

static int answer_put(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    const char *key = pmi_line_get(line, "key"), *value = pmi_line_get(line, "value");
    const char *problem = !key || !*key || !value            ? "key_or_value_is_missing"
                          : strlen(key) >= PMI_KEY_LIMIT     ? "key_is_too_long"
                          : strlen(value) >= PMI_VALUE_LIMIT ? "value_is_too_long"
                          : key[0] == '@'                    ? "key_begins_with_@"
                                                             : NULL;
    const size_t bytes = problem ? 0 : strlen(key) + strlen(value) + 2;
    if (!problem && pmi->own_bytes + bytes > PMI_OWN_LIMIT)
        problem = "too_many_keys_of_this_node";
    if (problem)
        return buffer_printf(&rank->replies, "cmd=put_result rc=-1 msg=%s\n", problem);
    pmi->own_bytes += bytes;
    if (keep_pair(pmi, key, value) < 0 || buffer_printf(&pmi->own, "%s=%s\n", key, value) < 0)
        return -1;
    return buffer_text(&rank->replies, "cmd=put_result rc=0 msg=success\n");
}

static int answer_get(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    const char *key = pmi_line_get(line, "key");
    scope_buffer mapping = {.limit = PMI_VALUE_LIMIT};
    const char *value = NULL;
    if (key && strcmp(key, mapping_key) == 0)
        value = pmi_mapping(pmi->counts, pmi->place.nodes, &mapping) ? mapping.data : NULL;
    else if (key)
        value = find_value(pmi, key);
    if (!value)
        return buffer_text(&rank->replies, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    return buffer_printf(&rank->replies, "cmd=get_result rc=0 msg=success value=%s\n", value);
}

static int answer_barrier(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)pmi;
    (void)line;
    rank->state = PMI_IN_BARRIER; /* the reply follows an exchange */
    return 0;
}

static int answer_finalize(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)pmi;
    (void)line;
    rank->state = PMI_FINALIZED;
    return buffer_text(&rank->replies, "cmd=finalize_ack rc=0\n");
}

/* The process ends by itself; there is no reply. */
static int answer_abort(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    const char *code = pmi_line_get(line, "exitcode");
    rank->note = (struct pmi_note){PMI_NOTE_ABORT, (int)(rank - pmi->ranks),
                                   code ? (int)strtol(code, NULL, 10) : 1}; /* no number is 0 */
    return 0;
}

static int answer_spawn(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)line;
    rank->spawns = true; /* until endcmd */
    rank->note = (struct pmi_note){PMI_NOTE_SPAWN, (int)(rank - pmi->ranks), 0};
    return 0;
}

static int answer_publish(struct pmi *pmi, struct pmi_rank *rank, const struct pmi_line *line)
{
    (void)pmi;
    const char *name = pmi_line_get(line, "cmd");
    return buffer_printf(&rank->replies, "cmd=%.*s_result rc=-1 info=fail msg=names_are_not_served\n",
                         (int)strcspn(name, "_"), name);
}

static const struct request requests[] = {
    {"init", IN(PMI_STARTED), answer_init},
    {"get_maxes", ONCE_INITIALISED, answer_maxes},
    {"get_appnum", ONCE_INITIALISED, answer_appnum},
    {"get_my_kvsname", ONCE_INITIALISED, answer_name},
    {"get_universe_size", ONCE_INITIALISED, answer_universe},
    {"put", ONCE_INITIALISED, answer_put},
    {"get", ONCE_INITIALISED, answer_get},
    {"barrier_in", ONCE_INITIALISED, answer_barrier},
    {"finalize", ONCE_INITIALISED, answer_finalize},
    {"abort", ANY_TIME, answer_abort},
    {"spawn", ONCE_INITIALISED, answer_spawn},
    {"publish_name", ONCE_INITIALISED, answer_publish},
    {"unpublish_name", ONCE_INITIALISED, answer_publish},
    {"lookup_name", ONCE_INITIALISED, answer_publish},
};

static int pmi_take_line(struct pmi *pmi, struct pmi_rank *rank, char *text, struct muster_error *err)
{
    struct pmi_line line;
    if (rank->spawns) { /* its lines up to the last one are not read */
        rank->spawns = strcmp(text, "endcmd") != 0;
        return rank->spawns ? 0
                            : buffer_text(&rank->replies, "cmd=spawn_result rc=-1 msg=spawn_is_not_served\n");
    }
    if (pmi_line_parse(text, &line) < 0)
        return error_set(err, MUSTER_E_INVALID, "the line '%.60s' is no request of PMI-1", text);
    const char *name = pmi_line_get(&line, "cmd");
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strcmp(requests[i].name, name) != 0)
            continue;
        rank->again |= requests[i].answer == answer_init && rank->state == PMI_FINALIZED;
        if (!(requests[i].states & IN(rank->state)))
            return error_set(err, MUSTER_E_STATE, "the request '%.40s' comes from a process that %s", name,
                             pmi_state_text(rank->state));
        return requests[i].answer(pmi, rank, &line) < 0
                   ? error_set(err, MUSTER_E_NOMEM, "no memory for the request '%s'", name)
                   : 0;
    }
    /* an extension of a client that is newer: it can do without */
    return buffer_printf(&rank->replies, "cmd=%.40s_result rc=-1 msg=unknown_request\n", name);
}

int pmi_take(struct pmi *pmi, int local_rank, const char *bytes, size_t length, struct muster_error *err)
{
    struct pmi_rank *rank = &pmi->ranks[local_rank];
    int result = rank->state == PMI_GONE ? -1 : 0;
    while (length && result == 0) {
        const char *end = memchr(bytes, '\n', length);
        const size_t part = end ? (size_t)(end - bytes) : length;
        if (rank->line.length + part >= PMI_LINE_LIMIT)
            result = error_set(err, MUSTER_E_LIMIT, "a line has more than %d bytes", PMI_LINE_LIMIT - 1);
        else if (memchr(bytes, '\0', part))
            result = error_set(err, MUSTER_E_INVALID, "a line has a zero byte");
        else if (buffer_append(&rank->line, bytes, part) < 0 ||
                 (end && buffer_append(&rank->line, "", 1) < 0))
            result = error_set(err, MUSTER_E_NOMEM, "no memory for a line");
        if (result == 0 && end) {
            result = pmi_take_line(pmi, rank, rank->line.data, err);
            buffer_clear(&rank->line);
        }
        bytes += part + (end ? 1 : 0);
        length -= part + (end ? 1 : 0);
    }
    if (result < 0)
        pmi_leave(pmi, local_rank);
    return result;
}

/* --- exchanges --- */

bool pmi_reports_missing(const struct pmi *pmi)
{
    return pmi->reports;
}

int pmi_report_missing(struct pmi *pmi, int local_rank)
{
    if (pmi->reports || pmi->under_way || pmi->place.nodes == 1)
        return 0;
    pmi->reports = true;
    buffer_clear(&pmi->own);
    return buffer_printf(&pmi->own, "@missing %d\n", pmi->place.first + local_rank);
}

static bool all_are(const struct pmi *pmi, enum pmi_state state)
{
    for (int i = 0; i < pmi->place.local; i++)
        if (pmi->ranks[i].state != state)
            return false;
    return true;
}

static bool any_is(const struct pmi *pmi, enum pmi_state state)
{
    for (int i = 0; i < pmi->place.local; i++)
        if (pmi->ranks[i].state == state)
            return true;
    return false;
}

int pmi_due_exchange(struct pmi *pmi, struct buffer **own)
{
    const bool due = pmi->exchanges ? all_are(pmi, PMI_IN_BARRIER) : any_is(pmi, PMI_GREETS);
    if ((!due && !pmi->reports) || pmi->under_way)
        return -1;
    pmi->under_way = true;
    *own = &pmi->own;
    return pmi->exchanges;
}

/* "@node first local": a node begins. */
static int take_node(struct pmi *pmi, const char *text, struct muster_error *err)
{
    char *end;
    const long node = strtol(text + 1, &end, 10);
    const long first = *end == ' ' ? strtol(end + 1, &end, 10) : -1;
    const long local = *end == ' ' ? strtol(end + 1, &end, 10) : -1;
    const bool own = node == pmi->place.node;
    if (*end || node < 0 || node >= pmi->place.nodes || first < 0 || local < 1 ||
        local > pmi->place.world - first ||
        (own && (first != pmi->place.first || local != pmi->place.local)) ||
        (pmi->counts[node] && pmi->counts[node] != local))
        return error_set(err, MUSTER_E_INVALID, "'%.60s' is no node of %d with %d ranks", text,
                         pmi->place.nodes, pmi->place.world);
    pmi->counts[node] = (int)local;
    return 0;
}

static int take_exchanged(struct pmi *pmi, char *text, struct muster_error *err)
{
    static const char missing[] = "@missing ";
    char *equal = strchr(text, '=');
    if (strncmp(text, missing, strlen(missing)) == 0)
        return error_set(err, MUSTER_E_PEER, "rank %.10s, for which MPI waits, exited 0 without MPI_Finalize",
                         text + strlen(missing));
    if (text[0] == '@')
        return take_node(pmi, text, err);
    if (!equal)
        return error_set(err, MUSTER_E_INVALID, "'%.60s' is neither a node nor a key", text);
    *equal = '\0';
    return keep_pair(pmi, text, equal + 1) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for a key") : 0;
}

int pmi_take_exchange(struct pmi *pmi, const char *all, size_t length, struct muster_error *err)
{
    scope_buffer line = {0};
    while (length) {
        const char *end = memchr(all, '\n', length);
        if (!end)
            return error_set(err, MUSTER_E_INVALID, "the nodes' keys end within a line");
        const size_t part = (size_t)(end - all);
        buffer_clear(&line);
        if (memchr(all, '\0', part))
            return error_set(err, MUSTER_E_INVALID, "the nodes' keys have a zero byte");
        if (buffer_append(&line, all, part) < 0 || buffer_append(&line, "", 1) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a line");
        if (take_exchanged(pmi, line.data, err) < 0)
            return -1;
        all += part + 1;
        length -= part + 1;
    }
    int ranks = 0;
    for (int i = 0; i < pmi->place.nodes; i++)
        ranks += pmi->counts[i];
    if (ranks != pmi->place.world)
        return error_set(err, MUSTER_E_INVALID, "the nodes name %d ranks, and the world has %d", ranks,
                         pmi->place.world);
    pmi->exchanges++;
    pmi->under_way = false;
    return begin_own(pmi) < 0 || answer_waiting(pmi, pmi->exchanges > 1) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for replies")
               : 0;
}

bool pmi_mapping(const int *counts, int nodes, struct buffer *out)
{
    int result = buffer_text(out, "(vector");
    for (int i = 0, next; i < nodes && result == 0; i = next) {
        for (next = i + 1; next < nodes && counts[next] == counts[i];)
            next++;
        result = buffer_printf(out, ",(%d,%d,%d)", i, next - i, counts[i]);
    }
    return result == 0 && buffer_text(out, ")") == 0 && out->length < PMI_VALUE_LIMIT;
}
