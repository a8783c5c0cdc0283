/* api_suggest.c - muster_trainer.h: the fastest meshes of a described machine, as text or JSON. */
#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"
#include "runtime/device/host_memory.h"
#include "runtime/plan/plan_suggest.h"
#include "runtime/world/sized.h"

/* The line of a node to the others if none is described: 10 Gb/s. */
static const struct plan_line usual_link = {50e-6, 1 / 1.25e9};

static int check_machine(const struct muster_machine *m, struct muster_error *err)
{
    if (m->world_size < 1 || m->ranks_per_node < 0 || m->memory < 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "a machine of %d ranks, %d a node, with %lld bytes a rank: ranks must be 1 at least, "
            "the others 0 at least",
            m->world_size, m->ranks_per_node, (long long)m->memory);
    if (m->ranks_per_node && m->world_size % m->ranks_per_node)
        return error_set(err, MUSTER_E_INVALID, "%d ranks are no whole nodes of %d ranks", m->world_size,
                         m->ranks_per_node);
    if (!(m->link_bytes_s >= 0) || !(m->link_latency_s >= 0))
        return error_set(err, MUSTER_E_INVALID,
                         "a link of %g bytes/s and %g s: both must be 0 at least, and 0 for the usual one",
                         m->link_bytes_s, m->link_latency_s);
    return 0;
}

static struct plan_rates rates_of(const struct muster_trainer *t, const struct muster_machine *m)
{
    struct plan_rates rates;
    api_rates(t, &rates);
    rates.ranks_per_node = m->ranks_per_node < m->world_size ? m->ranks_per_node : 0;
    rates.link = usual_link;
    if (m->link_bytes_s > 0)
        rates.link = (struct plan_line){m->link_latency_s, 1 / m->link_bytes_s};
    return rates;
}

/* Bytes of a rank: as described, as set, a GPU's own, or a rank's share of a node with as much memory as this
 * one. */
static int find_memory(const struct muster_trainer *t, const struct muster_machine *m, int64_t *memory,
                       struct muster_error *err)
{
    struct muster_error why = {0};
    *memory = m->memory ? m->memory : t->config.memory_limit;
    if (*memory > 0)
        return 0;
    if (api_plan_memory(t) == PLAN_MEMORY_ALL) {
        *memory = host_memory_total() / (m->ranks_per_node ? m->ranks_per_node : m->world_size);
        return 0;
    }
    if (api_gpu_memory(t, m->world_size, memory, &why) == 0)
        return 0;
    return error_set(err, why.code,
                     "the memory of a rank's GPU is not known; give it (--memory 80G of muster-train), set "
                     "training.memory_limit, or name a GPU (training.device: h100); this machine: %s",
                     why.text);
}

/* ---- output ---- */

/* {pipeline: 4, schedule: interleaved, chunks: 2}; quote: '"' for JSON, else '\0'. */
static void put_mesh(const struct plan_options *o, bool json, struct buffer *out)
{
    const char *q = json ? "\"" : "";
    (void)buffer_printf(out, "{%spipeline%s: %d", q, q, o->mesh.side[SIDE_PIPELINE]);
    if (o->mesh.side[SIDE_PIPELINE] > 1)
        (void)buffer_printf(out, ", %sschedule%s: %s%s%s", q, q, q, pipe_schedule_name(o->schedule), q);
    if (o->chunks > 1)
        (void)buffer_printf(out, ", %schunks%s: %d", q, q, o->chunks);
    (void)buffer_text(out, "}");
}

static void put_training(const struct plan_options *o, bool json, struct buffer *out)
{
    const char *q = json ? "\"" : "";
    (void)buffer_printf(out, "{%sstrategy%s: %s%s%s", q, q, q, strategy_name(o->strategy), q);
    if (o->strategy == STRATEGY_HYBRID_SHARD)
        (void)buffer_printf(out, ", %sreplicas%s: %d", q, q, o->mesh.side[SIDE_REPLICATE]);
    (void)buffer_printf(out, ", %smicro_batch%s: %d, %srecompute%s: %s%s%s}", q, q, o->shape.B, q, q, q,
                        recompute_name(o->recompute.kind), q);
}

static void put_suggestions_text(const struct muster_machine *m, const struct suggest_request *q,
                                 const struct suggest_result *r, struct buffer *out)
{
    char bytes[32], crossing[32];
    (void)buffer_printf(out, "# %d rank%s", m->world_size, m->world_size == 1 ? "" : "s");
    if (m->ranks_per_node)
        (void)buffer_printf(out, " on %d node%s", m->world_size / m->ranks_per_node,
                            m->world_size == m->ranks_per_node ? "" : "s");
    (void)buffer_printf(out, ", %s each: %d meshes, %d planned and proved; the fastest ",
                        text_format_bytes(bytes, sizeof bytes, q->memory), r->meshes, r->planned);
    plan_rates_text(q->rates, out);
    (void)buffer_text(out, "\n");
    for (int i = 0; i < r->count; i++) {
        const struct suggestion *s = &r->best[i];
        (void)buffer_printf(
            out,
            "\n# %d: step %.4g s, idle %.1f%%, %s a rank of the largest stage, %s between nodes\n"
            "mesh: ",
            i + 1, s->step_s, s->idle * 100, text_format_bytes(bytes, sizeof bytes, s->bytes),
            text_format_bytes(crossing, sizeof crossing, (int64_t)s->node_bytes));
        put_mesh(&s->options, false, out);
        (void)buffer_text(out, "\ntraining: ");
        put_training(&s->options, false, out);
        (void)buffer_text(out, "\n");
    }
}

static void put_suggestions_json(const struct muster_machine *m, const struct suggest_request *q,
                                 const struct suggest_result *r, struct buffer *out)
{
    (void)buffer_printf(out,
                        "{\"schema\": \"muster-suggest-1\",\n \"world_size\": %d, \"ranks_per_node\": %d, "
                        "\"memory\": %" PRId64
                        ", \"rates\": \"%s\",\n \"meshes\": %d, \"planned\": %d,\n \"suggestions\": [",
                        m->world_size, m->ranks_per_node, q->memory,
                        *q->rates->of ? q->rates->of : "ordinary cores", r->meshes, r->planned);
    for (int i = 0; i < r->count; i++) {
        const struct suggestion *s = &r->best[i];
        (void)buffer_printf(out,
                            "%s{\"step_s\": %.9g, \"idle\": %.9g, \"bytes\": %" PRId64
                            ", \"node_bytes\": %.0f,\n   \"mesh\": ",
                            i ? ",\n  " : "\n  ", s->step_s, s->idle, s->bytes, s->node_bytes);
        put_mesh(&s->options, true, out);
        (void)buffer_text(out, ", \"training\": ");
        put_training(&s->options, true, out);
        (void)buffer_text(out, "}");
    }
    (void)buffer_text(out, "]}\n");
}

/* ---- the search ---- */

/* The settings without the keys that the search tries. The caller frees the list, not the texts. */
static const char **without_tried(const char *const *settings)
{
    static const char *const tried[] = {"mesh.",
                                        "training.strategy=",
                                        "training.replicas=",
                                        "training.micro_batch=",
                                        "training.recompute=",
                                        "training.recompute_every="};
    size_t count = 0, kept = 0;
    while (settings && settings[count])
        count++;
    const char **list = mem_calloc(count + 2, sizeof *list);
    for (size_t i = 0; list && i < count; i++) {
        bool drops = false;
        for (size_t k = 0; k < sizeof tried / sizeof *tried; k++)
            drops |= !strncmp(settings[i], tried[k], strlen(tried[k]));
        if (!drops)
            list[kept++] = settings[i];
    }
    if (list)
        list[kept] =
            "training.strategy=NO_SHARD"; /* the only one for a rank alone that all settings go with */
    return list;
}

static int suggest(struct muster_trainer *t, const struct muster_machine *m, int32_t format,
                   struct buffer *out, struct muster_error *err)
{
    const struct plan_rates rates = rates_of(t, m);
    struct suggest_request request = {.world_size = m->world_size,
                                      .global_batch = t->config.global_batch,
                                      .counted = api_plan_memory(t),
                                      .rates = &rates};
    if (find_memory(t, m, &request.memory, err) < 0)
        return -1;
    scope_free struct suggest_result *result = mem_calloc(1, sizeof *result);
    if (!result)
        return error_set(err, MUSTER_E_NOMEM, "no memory for suggestions");
    if (plan_suggest(&t->model, &t->plan, &request, result, err) < 0)
        return -1;
    (format == MUSTER_PLAN_JSON ? put_suggestions_json : put_suggestions_text)(m, &request, result, out);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory to print suggestions") : 0;
}

int64_t muster_plan_suggest(struct muster_model *model, const struct muster_machine *machine,
                            const char *const *settings, int32_t format, char *text, int64_t size,
                            struct muster_error *err)
{
    const struct train_place alone = {0, 1, 1};
    struct muster_trainer t = {0};
    struct muster_machine m;
    scope_buffer out = {0};
    if (size < 0 || (size && !text))
        return error_set(err, MUSTER_E_INVALID, "%lld bytes for the text of suggestions: use 0 at least",
                         (long long)size);
    if (sized_in("muster_machine", &m, sizeof m, machine, machine->size, sizeof m, err) < 0 ||
        check_machine(&m, err) < 0)
        return -1;
    scope_free const char **others = without_tried(settings);
    int result = others ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    if (!result)
        result = api_prepare(&t, model, others, &alone, err) ||
                         api_plan_sizes(&t, m.ranks_per_node ? m.ranks_per_node : m.world_size, err)
                     ? -1
                     : 0;
    if (!result)
        result = suggest(&t, &m, format, &out, err);
    api_release(&t);
    if (result < 0)
        return -1;
    const int64_t used = (int64_t)out.length < size ? (int64_t)out.length : size - 1;
    if (size) {
        memcpy(text, out.data, (size_t)used);
        text[used] = '\0';
    }
    return (int64_t)out.length;
}
