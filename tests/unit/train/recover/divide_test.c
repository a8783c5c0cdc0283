/* divide_test.c - the state of a world in worlds of other sizes: ranks as threads, of which some are lost and
 * the others get other numbers. No step is made in the world between, so that the bits at the end are those
 * of an undisturbed run: parameters, moments, averages and counts have come through. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/model/lora.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/train/recover/cut_step.h"
#include "tests/unit/train/train_harness.h"

enum { RANKS = 4, STEPS = 14, LOST_AFTER = 10, COPIES = 4, ANEW = -1, END = -2 };

struct rank {
    struct model *model;
    struct trainer *trainer;
    struct recover_copies *copies;
    struct recover_kept *kept;
};

/* A world. then: the numbers of its ranks in the world before; ANEW: it was started for this one. */
struct world {
    struct mesh mesh;
    int then[RANKS + 1];
};

struct job {
    struct training training;
    int copies;             /* every so many steps; 0: none */
    struct rank now[RANKS]; /* the present world's */
    struct kv_store store;
    int64_t begins; /* the step with which its ranks are to go on; -1: with none */
    int until;      /* steps */
    bool cut;       /* one more step, in which ranks 0 and 1 are cut off before they change their state */
    float *params;
};

/* A world of two ranks gets another cut than that of four. */
static int cut_stages(const struct job *job, struct model *model, const struct plan_options *options,
                      struct muster_error *err)
{
    const struct plan_cut even = {.stages = options->mesh.side[SIDE_PIPELINE], .even = true};
    if (even.stages == 1)
        return 0;
    if (plan_cut_model(model, options, &even, err) < 0)
        return -1;
    for (int l = 0; mesh_size(job->training.mesh) == 2 && l < model->layer_count; l++)
        if (model->layers[l].part) {
            model->layers[l].part = 0;
            break;
        }
    return 0;
}

static int open_rank(struct job *job, int number, struct muster_error *err)
{
    struct rank *r = &job->now[number];
    struct trainer_options options = training_options(&job->training, number);
    options.plan.state_copies = job->copies ? COPIES : 0;
    options.store = &job->store;
    options.timeout_ns = 20 * NS_PER_S;
    options.comm = cut_comm();
    r->model = job->training.create ? job->training.create(&job->training, err)
                                    : gpt2_create(&job->training.gpt, err);
    if (!r->model || cut_stages(job, r->model, &options.plan, err) < 0)
        return -1;
    r->trainer = trainer_create(r->model, &options, err);
    if (!r->trainer)
        return -1;
    r->copies = job->copies ? recover_copies_create(r->trainer, 0, err) : NULL;
    return job->copies && !r->copies ? -1 : 0;
}

static int recover(struct job *job, struct rank *r, struct muster_error *err)
{
    scope_buffer mine = {0}, theirs = {0};
    int64_t moved;
    const int result = trainer_recover(r->trainer, r->copies, r->kept, &mine, &theirs, &moved, err);
    char expected[32];
    (void)snprintf(expected, sizeof expected, "step %lld", (long long)job->begins);
    recover_kept_destroy(take_pointer(&r->kept));
    if (result < 0)
        return -1;
    if ((result ? trainer_whole(r->trainer) : -1) != job->begins)
        return error_set(err, MUSTER_E_STATE, "goes on after step %lld",
                         (long long)trainer_whole(r->trainer));
    if (result && (theirs.length != strlen(expected) || memcmp(theirs.data, expected, theirs.length) != 0))
        return error_set(err, MUSTER_E_STATE, "the text is %.*s", (int)theirs.length, theirs.data);
    return 0;
}

static int make_steps(struct job *job, int number, struct muster_error *err)
{
    struct rank *r = &job->now[number];
    int32_t tokens[1024], targets[1024];
    for (int step = (int)r->trainer->steps; step < job->until + job->cut; step++) {
        const struct trainer_step_values values = training_values(&job->training, step);
        scope_buffer text = {0};
        training_batch(&job->training, number, step, tokens, targets);
        buffer_printf(&text, "step %d", step + 1);
        const bool cut = step == job->until && number < 2;
        if (cut)
            cut_next_step(r->trainer, CUT_IN_SUM);
        if (trainer_step(r->trainer, &(struct batch){{tokens, targets}}, &values, NULL, err))
            return cut ? 0 : -1;
        if (r->copies && !((step + 1) % job->copies) && recover_copies_make(r->copies, &text, err) < 0)
            return -1;
    }
    return 0;
}

static int read_params(struct job *job, int number, struct muster_error *err)
{
    const struct rank *r = &job->now[number];
    float *at = number ? NULL : job->params;
    int result = trainer_exchange_averages(r->trainer, true, err); /* which follow from all steps */
    for (int i = 0; !result && i < r->model->param_count; i++) {
        result = trainer_get_param(r->trainer, i, at, err);
        at = at ? at + param_elements(&r->model->params[i]) : NULL;
    }
    return result;
}

static int rank_body(int number, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    (void)size;
    const int failed = open_rank(job, number, &err) < 0 || recover(job, &job->now[number], &err) < 0 ||
                       make_steps(job, number, &err) < 0 ||
                       (job->params && read_params(job, number, &err) < 0);
    if (failed)
        fprintf(stderr, "rank %d of %d: %s\n", number, size, err.text);
    return failed;
}

static void close_rank(struct rank *r)
{
    recover_copies_destroy(r->copies);
    trainer_destroy(r->trainer);
    model_destroy(r->model);
    recover_kept_destroy(r->kept);
    *r = (struct rank){0};
}

/* The state that a rank takes along into its next world. */
static struct recover_kept *keep(struct rank *r)
{
    scope_buffer mine = {0};
    struct recover_kept *kept = NULL;
    trainer_stop(r->trainer);
    buffer_printf(&mine, "step %lld", (long long)trainer_whole(r->trainer));
    assert_true(recover_keep(r->trainer, r->copies, 1, &mine, &kept, NULL) >= 0);
    close_rank(r);
    return kept;
}

static void move_to(struct job *job, const struct world *world)
{
    struct rank before[RANKS], now[RANKS] = {{0}};
    memcpy(before, job->now, sizeof before);
    int size = 0;
    for (; world->then[size] != END; size++)
        if (world->then[size] != ANEW)
            now[size].kept = keep(&before[world->then[size]]);
    for (int i = 0; i < RANKS; i++)
        if (before[i].trainer)
            close_rank(&before[i]);
    memcpy(job->now, now, sizeof now);
    job->training.mesh = world->mesh;
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_non_null(memory);
    job->store = kv_memory_store(memory);
    assert_int_equal(mesh_size(world->mesh), size);
    assert_int_equal(rank_threads_run(size, rank_body, job), 0);
    kv_memory_destroy(memory);
}

static struct mesh of_four(enum strategy strategy)
{
    return strategy == STRATEGY_HYBRID_SHARD ? (struct mesh)MESH(1, 2, 2) : (struct mesh)MESH(1, 1, 4);
}

static struct job job_of(enum strategy strategy, int copies, float *params)
{
    struct job job = {.training = training_small(), .copies = copies, .begins = -1, .params = params};
    job.training.strategy = strategy;
    job.training.keep_whole_bytes = 300; /* some parameters are kept whole by all */
    job.training.average_decay = 0.9;
    return job;
}

static void finish(struct job *job)
{
    for (int i = 0; i < RANKS; i++)
        close_rank(&job->now[i]);
}

/* From four ranks to the world between, in which they go on after step `begins`, and back to four. Where that
 * is the step after LOST_AFTER, ranks 0 and 1 were cut off in it. */
static void check_between(enum strategy strategy, enum dtype dtype, int copies, const struct world *first,
                          const struct world *between, int64_t begins, const struct world *last)
{
    const struct training how = training_small();
    GUARD(guard_model) struct model *model = gpt2_create(&how.gpt, NULL);
    const size_t count = (size_t)model_parameters(model);
    scope_free float *expected = mem_calloc(count, sizeof *expected),
                     *params = mem_calloc(count, sizeof *params);
    struct job base = job_of(strategy, copies, expected), job = job_of(strategy, copies, NULL);
    base.training.param_dtype = job.training.param_dtype = dtype;
    base.until = STEPS;
    move_to(&base, first);
    finish(&base);
    job.until = LOST_AFTER;
    job.cut = begins > LOST_AFTER;
    move_to(&job, first);
    job.begins = begins;
    job.until = 0;
    job.cut = false;
    move_to(&job, between);
    job.until = STEPS;
    job.params = params;
    move_to(&job, last);
    finish(&job);
    assert_memory_equal(params, expected, count * sizeof *params);
}

static void check(enum strategy strategy, enum dtype dtype, int copies, const struct world *between,
                  int64_t begins, const int back[RANKS + 1])
{
    const struct world first = {of_four(strategy), {ANEW, ANEW, ANEW, ANEW, END}};
    struct world last = {.mesh = first.mesh};
    memcpy(last.then, back, sizeof last.then);
    check_between(strategy, dtype, copies, &first, between, begins, &last);
}

static void replicas(void **state)
{
    (void)state;
    const struct world three = {MESH(1, 1, 3), {3, 0, 2, END}}, one = {MESH(1, 1, 1), {1, END}},
                       two = {MESH(1, 2, 1), {1, 2, END}};
    check(STRATEGY_NO_SHARD, DTYPE_F32, 0, &three, LOST_AFTER, (const int[]){1, ANEW, 0, 2, END});
    check(STRATEGY_NO_SHARD, DTYPE_F32, 0, &one, LOST_AFTER, (const int[]){ANEW, ANEW, 0, ANEW, END});
    /* each shard keeps one replica, and then there is no shard */
    check(STRATEGY_HYBRID_SHARD, DTYPE_F32, 0, &two, LOST_AFTER, (const int[]){ANEW, ANEW, 0, 1, END});
}

static void shards_with_copies(void **state)
{
    (void)state;
    const struct world three = {MESH(1, 1, 3), {3, 0, 2, END}}, two = {MESH(1, 1, 2), {0, 2, END}};
    check(STRATEGY_FULL_SHARD, DTYPE_F32, COPIES, &three, 8, (const int[]){1, ANEW, 0, 2, END});
    check(STRATEGY_FULL_SHARD, DTYPE_BF16, COPIES, &two, 8, (const int[]){1, ANEW, 0, ANEW, END});
    check(STRATEGY_SHARD_OPTIM, DTYPE_BF16, COPIES, &two, 8, (const int[]){1, ANEW, 0, ANEW, END});
}

/* Two stages with two replicas, of which one is left of each; embedding and head share a parameter. */
static void stages(void **state)
{
    (void)state;
    const struct world first = {MESH(2, 2, 1), {ANEW, ANEW, ANEW, ANEW, END}},
                       two = {MESH(2, 1, 1), {3, 0, END}}, last = {MESH(2, 2, 1), {ANEW, 1, 0, ANEW, END}};
    check_between(STRATEGY_NO_SHARD, DTYPE_F32, 0, &first, &two, LOST_AFTER, &last);
}

static struct model *create_adapted(const struct training *run, struct muster_error *err)
{
    struct lora lora = {.rank = 2, .alpha = 4};
    return lora_add_target(&lora, "c_attn", err) < 0 ? NULL : gpt2_create_adapted(&run->gpt, &lora, err);
}

/* The base does not change, and comes along: it may be of a checkpoint. */
static void adapters(void **state)
{
    (void)state;
    const struct world first = {of_four(STRATEGY_FULL_SHARD), {ANEW, ANEW, ANEW, ANEW, END}},
                       two = {MESH(1, 1, 2), {0, 2, END}};
    struct job job = job_of(STRATEGY_FULL_SHARD, COPIES, NULL), base = job;
    job.training.create = base.training.create = create_adapted;
    GUARD(guard_model) struct model *model = create_adapted(&job.training, NULL);
    const size_t count = (size_t)model_parameters(model);
    scope_free float *expected = mem_calloc(count, sizeof *expected),
                     *params = mem_calloc(count, sizeof *params);
    base.until = 8;
    base.params = expected;
    move_to(&base, &first);
    assert_true(trainer_divides(base.now[0].trainer));
    finish(&base);
    job.until = LOST_AFTER;
    move_to(&job, &first);
    job.begins = 8;
    job.until = 0;
    job.params = params;
    move_to(&job, &two);
    finish(&job);
    assert_memory_equal(params, expected, count * sizeof *params);
}

/* The shard or stage that was cut off has one rank left, which can finish the step that the others have made.
 */
static void shards_of_two_steps(void **state)
{
    (void)state;
    const struct world two = {MESH(1, 2, 1), {1, 2, END}},
                       four = {MESH(2, 2, 1), {ANEW, ANEW, ANEW, ANEW, END}},
                       stages = {MESH(2, 1, 1), {1, 2, END}}, last = {MESH(2, 2, 1), {ANEW, 1, 0, ANEW, END}};
    check(STRATEGY_HYBRID_SHARD, DTYPE_F32, 0, &two, LOST_AFTER + 1, (const int[]){ANEW, ANEW, 0, 1, END});
    check_between(STRATEGY_NO_SHARD, DTYPE_F32, 0, &four, &stages, LOST_AFTER + 1, &last);
}

/* More ranks: nothing is lost, so that shards need no copies. */
static void a_world_that_grows(void **state)
{
    (void)state;
    struct job job = job_of(STRATEGY_FULL_SHARD, 0, NULL);
    GUARD(guard_model) struct model *model = gpt2_create(&job.training.gpt, NULL);
    const size_t count = (size_t)model_parameters(model);
    scope_free float *expected = mem_calloc(count, sizeof *expected),
                     *params = mem_calloc(count, sizeof *params);
    job.until = LOST_AFTER;
    job.params = expected;
    move_to(&job, &(struct world){MESH(1, 1, 2), {ANEW, ANEW, END}});
    finish(&job);
    job.params = NULL;
    move_to(&job, &(struct world){MESH(1, 1, 2), {ANEW, ANEW, END}});
    job.params = params;
    job.begins = LOST_AFTER;
    move_to(&job, &(struct world){MESH(1, 1, 4), {ANEW, 1, ANEW, 0, END}});
    finish(&job);
    assert_memory_equal(params, expected, count * sizeof *params);
}

static int64_t little_memory(struct device *device)
{
    (void)device;
    return 4096;
}

/* A second state would have the kernel end the process: it is refused before, and the trainer is as it was.
 */
static void memory_for_no_second_state(void **state)
{
    (void)state;
    scope_buffer mine = {0};
    struct recover_kept *kept = NULL;
    struct muster_error err = {0};
    struct job job = job_of(STRATEGY_NO_SHARD, 0, NULL);
    job.until = 1;
    move_to(&job, &(struct world){MESH(1, 1, 1), {ANEW, END}});
    struct trainer *trainer = job.now[0].trainer;
    struct device_ops ops = *trainer->ops;
    const struct device_ops *real = trainer->ops;
    ops.memory_available = little_memory;
    trainer_stop(trainer);
    trainer->ops = &ops;
    assert_int_equal(recover_keep(trainer, NULL, 2, &mine, &kept, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
    assert_non_null(strstr(err.text, "this rank's part of what is free is 2.00 KB"));
    assert_null(kept);
    trainer->ops = real;
    assert_int_equal(recover_keep(trainer, NULL, 2, &mine, &kept, &err), 1);
    recover_kept_destroy(kept);
    finish(&job);
}

/* A shard of which nothing is left: no rank has a state. */
static void a_shard_that_is_gone(void **state)
{
    (void)state;
    struct job job = job_of(STRATEGY_FULL_SHARD, 0, NULL);
    job.until = LOST_AFTER;
    move_to(&job, &(struct world){of_four(STRATEGY_FULL_SHARD), {ANEW, ANEW, ANEW, ANEW, END}});
    job.until = 0;
    move_to(&job, &(struct world){MESH(1, 1, 3), {0, 1, 2, END}});
    finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas),
        cmocka_unit_test(shards_with_copies),
        cmocka_unit_test(stages),
        cmocka_unit_test(adapters),
        cmocka_unit_test(shards_of_two_steps),
        cmocka_unit_test(a_world_that_grows),
        cmocka_unit_test(memory_for_no_second_state),
        cmocka_unit_test(a_shard_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
