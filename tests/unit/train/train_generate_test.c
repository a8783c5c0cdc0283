/* train_generate_test.c - tokens that a trainer draws, with keys and values of earlier positions kept,
 * against a forward pass over the whole context for each token: prompts of more than one pass, and texts that
 * are longer than the context. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/logits.h"
#include "runtime/model/past.h"
#include "runtime/train/generate.h"
#include "tests/unit/train/train_harness.h"

enum { CONTEXT = PAST_CHUNK + 16, VOCAB = 48, MOST = 2 * CONTEXT };

static struct model *llama(const struct training *run, struct muster_error *err)
{
    (void)run;
    return llama_create(
        &(struct llama_config){
            .layers = 3, .channels = 32, .heads = 4, .kv_heads = 2, .vocab = VOCAB, .max_positions = CONTEXT},
        err);
}

/* A model's forward pass on the calling thread. */
struct passes {
    const struct model *model;
    const struct kernels *kernels;
    float *weights[256];
    void *work;
};

static void passes_open(struct passes *p, struct trainer *trainer)
{
    *p = (struct passes){.model = trainer_model(trainer), .kernels = trainer_kernels(trainer)};
    p->work = malloc((size_t)model_logits_work(p->model, p->kernels, (struct shape){1, CONTEXT}));
    for (int i = 0; i < p->model->param_count; i++) {
        p->weights[i] = malloc((size_t)param_elements(&p->model->params[i]) * sizeof(float));
        assert_int_equal(trainer_get_param(trainer, i, p->weights[i], NULL), 0);
    }
}

static void passes_close(struct passes *p)
{
    for (int i = 0; i < p->model->param_count; i++)
        free(p->weights[i]);
    free(p->work);
}

static const struct step_scalars none;

static void whole_pass(const struct passes *p, const int32_t *text, int count, float *logits)
{
    model_logits(p->model, p->kernels, (const void *const *)p->weights, text, &none, (struct shape){1, count},
                 p->work, logits, NULL);
}

/* Passes of other lengths until the room is full: the logits are those of a whole pass. */
static int kept_logits_are_those_of_a_whole_pass(struct trainer *trainer)
{
    int wrong = 0;
    struct passes p;
    struct past_sizes sizes;
    float kept[VOCAB], whole[VOCAB];
    int32_t text[CONTEXT];
    passes_open(&p, trainer);
    for (int i = 0; i < CONTEXT; i++)
        text[i] = (i * i + 3 * i) % VOCAB;
    assert_true(model_past_sizes(p.model, p.kernels, CONTEXT, &sizes));
    struct layer_past past = {
        .room = CONTEXT, .cache = malloc((size_t)sizes.cache), .work = malloc((size_t)sizes.work + 1)};
    for (int pass = 0; past.at < CONTEXT && !wrong; pass++) {
        const int at = past.at, left = CONTEXT - at, next = pass ? 1 + pass % 3 : PAST_CHUNK;
        const int count = next < left ? next : left;
        model_logits_after(p.model, p.kernels, (const void *const *)p.weights, text + at, &none,
                           (struct shape){1, count}, p.work, kept, NULL, &past);
        whole_pass(&p, text, at + count, whole);
        wrong = past.at != at + count;
        for (int v = 0; v < VOCAB; v++)
            wrong |= fabsf(kept[v] - whole[v]) > 1e-4F * (1 + fabsf(whole[v]));
        if (wrong)
            fprintf(stderr, "%s: other logits after %d positions than by a whole pass\n", p.model->name,
                    past.at);
    }
    wrong |= past.taken > sizes.cache;
    free(past.cache);
    free(past.work);
    passes_close(&p);
    return wrong ? -1 : 0;
}

/* The tokens by whole passes over the last positions of the text. */
static void draw_whole(struct trainer *trainer, const struct generate_options *o, int32_t *tokens)
{
    struct passes p;
    float logits[VOCAB], scratch[2 * VOCAB];
    int32_t text[MOST];
    int used = (int)o->prompt_count;
    passes_open(&p, trainer);
    for (int i = 0; i < used; i++)
        text[i] = o->prompt[i];
    for (int i = 0; i < o->count; i++) {
        const int from = used > CONTEXT ? used - CONTEXT : 0;
        whole_pass(&p, text + from, used - from, logits);
        text[used++] = tokens[i] = sample_token(&o->sample, logits, VOCAB, (uint64_t)i, scratch);
    }
    passes_close(&p);
}

/* Fresh weights are so small that a position hardly matters to the others. */
static void enlarge(struct trainer *trainer)
{
    const struct model *model = trainer_model(trainer);
    for (int i = 0; i < model->param_count; i++) {
        const int64_t count = param_elements(&model->params[i]);
        float *values = malloc((size_t)count * sizeof *values);
        assert_int_equal(trainer_get_param(trainer, i, values, NULL), 0);
        for (int64_t j = 0; j < count; j++)
            values[j] *= model->params[i].ndim > 1 ? 12 : 1;
        assert_int_equal(trainer_set_param(trainer, i, values, NULL), 0);
        free(values);
    }
}

/* Prompt and count: one pass and several, up to the end of the context, beyond it, and from beyond it on. */
static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    static const int cases[][2] = {{1, 8}, {PAST_CHUNK + 7, 9}, {CONTEXT - 3, 12}, {CONTEXT + 5, 3}};
    int32_t prompt[MOST], drawn[MOST], whole[MOST];
    struct muster_error err = {0};
    (void)run, (void)rank;
    if (step == 0) {
        enlarge(trainer);
        if (kept_logits_are_those_of_a_whole_pass(trainer))
            return -1;
    }
    for (size_t c = 0; step == 0 && c < sizeof cases / sizeof *cases; c++) {
        struct generate_options o = {.sample = {.temperature = 0.2, .seed = 5 + c},
                                     .prompt = prompt,
                                     .prompt_count = cases[c][0],
                                     .count = cases[c][1],
                                     .end = -1};
        for (int i = 0; i < o.prompt_count; i++)
            prompt[i] = (int32_t)((i * i + 7 * i + (int)c) % VOCAB);
        if (trainer_generate(trainer, &o, drawn, &err))
            return fprintf(stderr, "%s\n", err.text), -1;
        draw_whole(trainer, &o, whole);
        for (int i = 0; i < o.count; i++)
            if (drawn[i] != whole[i])
                return fprintf(stderr, "prompt of %d: token %d is %d, and by whole passes %d\n", cases[c][0],
                               i, drawn[i], whole[i]),
                       -1;
    }
    return 0;
}

static void draws(struct model *(*create)(const struct training *run, struct muster_error *err))
{
    struct training run = training_small();
    run.gpt.max_positions = CONTEXT;
    run.create = create;
    run.steps = 1;
    run.visit = visit;
    assert_int_equal(training_run(&run), 0);
}

static void gpt2_draws_as_by_whole_passes(void **state)
{
    (void)state;
    draws(NULL);
}

static void groups_of_heads_draw_as_by_whole_passes(void **state)
{
    (void)state;
    draws(llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_draws_as_by_whole_passes),
        cmocka_unit_test(groups_of_heads_draw_as_by_whole_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
