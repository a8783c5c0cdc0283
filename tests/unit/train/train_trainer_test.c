/* The trainer as a whole: gradients by finite differences, memory as planned, errors, and a
 * peer that goes away. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/executor/executor.h"
#include "runtime/files/files.h"
#include "runtime/model/rng.h"
#include "tests/support/faults.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/train/train_harness.h"

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

/* ---- gradients ---- */

enum { PROBES = 4 };

/* Every rank probes the same parameters; rank 0 judges. Steps with learning rate 0 leave all as it is. */
struct probe {
    double worst;
    char worst_name[MODEL_NAME_LIMIT];
};

static int loss_at(struct trainer *trainer, const struct training *run, int rank, double *loss)
{
    struct trainer_stats stats;
    struct trainer_step_values values = training_values(run, 0);
    size_t count = (size_t)run->samples * (size_t)run->positions;
    scope_free int32_t *tokens = mem_calloc(count, sizeof *tokens),
                       *targets = mem_calloc(count, sizeof *targets);
    values.learning_rate = 0;
    if (!tokens || !targets)
        return -1;
    training_batch(run, rank, 0, tokens, targets);
    if (trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, NULL))
        return -1;
    *loss = stats.loss;
    return 0;
}

static int probe_param(const struct training *run, struct trainer *trainer, int rank, int param,
                       const struct param_desc *desc)
{
    struct probe *probe = run->context;
    int64_t count = param_elements(desc);
    scope_free double *value = mem_calloc((size_t)count, sizeof *value),
                      *grad = mem_calloc((size_t)count, sizeof *grad);
    double loss;
    if (!value || !grad || loss_at(trainer, run, rank, &loss) ||
        trainer_get_param(trainer, param, value, NULL) || trainer_get_grad(trainer, param, grad, NULL))
        return -1;
    for (int i = 0; i < PROBES; i++) {
        int64_t at = (int64_t)(rng_bits(8, RNG_SAMPLE, (uint32_t)param, (uint64_t)i) % (uint64_t)count);
        const double h = 1e-5, kept = value[at];
        double up, down;
        value[at] = kept + h;
        if (trainer_set_param(trainer, param, value, NULL) || loss_at(trainer, run, rank, &up))
            return -1;
        value[at] = kept - h;
        if (trainer_set_param(trainer, param, value, NULL) || loss_at(trainer, run, rank, &down))
            return -1;
        value[at] = kept;
        if (trainer_set_param(trainer, param, value, NULL))
            return -1;
        double difference = (up - down) / (2 * h);
        /* central differences in double: about 1e-10 absolute for losses of order 1 */
        double error = fabs(grad[at] - difference) / (1e-4 + fabs(difference));
        if (rank == 0 && !(error <= probe->worst)) {
            probe->worst = error;
            (void)snprintf(probe->worst_name, sizeof probe->worst_name, "%s", desc->name);
        }
    }
    return 0;
}

static int probe_all(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)step;
    GUARD(guard_model) struct model *model = gpt2_create(&run->gpt, NULL);
    for (int param = 0; model && param < model->param_count; param++) {
        if (probe_param(run, trainer, rank, param, &model->params[param]))
            return -1;
    }
    return model ? 0 : -1;
}

static void check_gradients(struct training run)
{
    struct probe probe = {0};
    run.gpt = (struct gpt2_config){.layers = 2, .channels = 8, .heads = 2, .vocab = 11, .max_positions = 6};
    run.kernels = kernels_ref_f64();
    run.samples = 4;
    run.positions = 5;
    run.steps = 0;
    run.group_bytes = 1 << 10;
    run.visit = probe_all;
    run.context = &probe;
    assert_int_equal(training_run(&run), 0);
    if (probe.worst > 1e-5)
        fail_msg("%s: relative error %.2e", probe.worst_name, probe.worst);
}

static void gradients_by_finite_differences(void **state)
{
    (void)state;
    struct training run = training_small();
    check_gradients(run);
    run.micro_batches = 2;
    run.mesh.side[SIDE_SHARD] = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    check_gradients(run);
    run.strategy = STRATEGY_NO_SHARD;
    check_gradients(run);
}

/* ---- memory ---- */

static int check_arenas(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)run, (void)step;
    const struct plan *plan = trainer_plan(trainer);
    int64_t high = 0;
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++) {
        int64_t used = 0;
        for (int e = 0; e < plan->entry_count; e++) {
            const struct plan_entry *entry = &plan->entries[e];
            if (entry->memory == (enum memory_class)i && entry->offset + entry->bytes > used)
                used = entry->offset + entry->bytes;
        }
        if (trainer_arena_bytes(trainer, (enum memory_class)i) != plan->arena_bytes[i] ||
            plan->arena_bytes[i] != used) {
            fprintf(stderr, "rank %d, %s: arena %lld, plan %lld, high-water mark %lld\n", rank,
                    memory_class_name((enum memory_class)i),
                    (long long)trainer_arena_bytes(trainer, (enum memory_class)i),
                    (long long)plan->arena_bytes[i], (long long)used);
            return -1;
        }
        high += used;
    }
    return high > 0 ? 0 : -1;
}

static void arenas_are_as_planned(void **state)
{
    (void)state;
    struct training run = training_small();
    run.steps = 1;
    run.visit = check_arenas;
    assert_int_equal(training_run(&run), 0);
    run.mesh.side[SIDE_SHARD] = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    assert_int_equal(training_run(&run), 0);
    run.param_dtype = DTYPE_BF16;
    run.reduce_dtype = DTYPE_F16;
    assert_int_equal(training_run(&run), 0);
    run.mesh.side[SIDE_PIPELINE] = 2;
    assert_int_equal(training_run(&run), 0);
}

/* ---- errors ---- */

static void check_rejected(struct trainer_options options, int code, const char *names)
{
    struct training run = training_small();
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    struct trainer *trainer = trainer_create(model, &options, &err);
    assert_null(trainer);
    if (err.code != code || !strstr(err.text, names))
        fail_msg("error %d '%s', but wanted %d with '%s'", err.code, err.text, code, names);
}

static void bad_options_are_rejected(void **state)
{
    (void)state;
    struct training run = training_small();
    struct trainer_options good = training_options(&run, 0), bad = good;
    bad.memory_limit = 4096;
    check_rejected(bad, MUSTER_E_LIMIT, "4096 bytes) is the memory limit; use more ranks");
    bad = good;
    bad.plan.shape.B = 1 << 14; /* activations of tens of gigabytes, and of more than any machine has by T */
    bad.plan.shape.T = 20;
    bad.memory_limit = INT64_C(1) << 30;
    check_rejected(bad, MUSTER_E_LIMIT, "training.micro_batch: ");
    bad = good;
    bad.plan.shape.T = 21;
    check_rejected(bad, MUSTER_E_INVALID, "sequence length 21 is above the 20 positions");
    bad = good;
    bad.rank = 3;
    check_rejected(bad, MUSTER_E_INVALID, "rank 3 of 1");
    bad = good;
    bad.threads = 0;
    check_rejected(bad, MUSTER_E_INVALID, "threads is 0");
    bad = good;
    bad.world_size = 2;
    bad.plan.mesh.side[SIDE_SHARD] = 2;
    check_rejected(bad, MUSTER_E_INVALID, "need a store");
    bad = good;
    bad.plan.dtype = DTYPE_BF16;
    check_rejected(bad, MUSTER_E_UNSUPPORTED, "bf16");
    bad = good;
    bad.plan.train = false;
    check_rejected(bad, MUSTER_E_INVALID, "train");
}

static void bad_steps_are_rejected(void **state)
{
    (void)state;
    struct training run = training_small();
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    struct trainer_options options = training_options(&run, 0);
    options.plan.clip = false;
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(model, &options, &err);
    assert_non_null(trainer);
    int32_t tokens[8 * 16] = {0};
    struct trainer_step_values values = training_values(&run, 0);
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, tokens}}, &values, NULL, &err), -1);
    assert_non_null(strstr(err.text, "without clipping"));
    values.clip_norm = 0;
    values.global_tokens = 0;
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, tokens}}, &values, NULL, &err), -1);
    assert_non_null(strstr(err.text, "global_tokens is 0"));
    assert_int_equal(trainer_get_param(trainer, 1000, tokens, &err), -1);
    assert_non_null(strstr(err.text, "parameter 1000"));
    values = training_values(&run, 0); /* a refused call does not end the run */
    values.clip_norm = 0;
    struct trainer_stats stats;
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, tokens}}, &values, &stats, &err), 0);
    assert_true(stats.loss > 0 && stats.grad_norm == 0 && !stats.skipped);
}

/* ---- steps ---- */

static void a_norm_that_is_not_finite_skips_the_step(void **state)
{
    (void)state;
    struct training run = training_small();
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    struct trainer_options options = training_options(&run, 0);
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(model, &options, &err);
    assert_non_null(trainer);
    int last = model->param_count - 1; /* ln_f.bias */
    float before[32], after[32], bias[32] = {[3] = INFINITY};
    int32_t tokens[8 * 16], targets[8 * 16];
    struct trainer_step_values values = training_values(&run, 0);
    struct trainer_stats stats;
    training_batch(&run, 0, 0, tokens, targets);
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, &err), 0);
    assert_false(stats.skipped);
    assert_int_equal(trainer_get_param(trainer, 3, before, &err), 0); /* h.0.ln_1.bias */
    assert_int_equal(trainer_set_param(trainer, last, bias, &err), 0);
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, &err), 0);
    assert_true(stats.skipped);
    assert_int_equal(trainer_get_param(trainer, 3, after, &err), 0);
    assert_memory_equal(before, after, sizeof before);
    memset(bias, 0, sizeof bias);
    assert_int_equal(trainer_set_param(trainer, last, bias, &err), 0);
    assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, &err), 0);
    assert_false(stats.skipped);
    assert_true(isfinite(stats.loss));
}

static int check_evaluation(const struct training *run, struct trainer *trainer, int rank, int step)
{
    int32_t tokens[8 * 16], targets[8 * 16];
    float before[32], after[32];
    double loss, again, stepped;
    if (step > 0)
        return 0;
    training_batch(run, rank, 0, tokens, targets);
    if (trainer_get_param(trainer, 2, before, NULL) ||
        trainer_evaluate(trainer, &(struct batch){{tokens, targets}}, &loss, NULL) ||
        trainer_evaluate(trainer, &(struct batch){{tokens, targets}}, &again, NULL) ||
        trainer_get_param(trainer, 2, after, NULL) || loss_at(trainer, run, rank, &stepped))
        return -1;
    if (loss != again || memcmp(before, after, sizeof before)) {
        fprintf(stderr, "rank %d: evaluation is not repeatable: %.17g, %.17g\n", rank, loss, again);
        return -1;
    }
    double *losses = run->context;
    losses[rank] = loss;
    if (rank == 0)
        losses[2] = stepped;
    return 0;
}

/* The mean of the ranks' evaluations is the loss of a step over the same batch. */
static void evaluation_is_the_step_without_its_consequences(void **state)
{
    (void)state;
    double losses[3] = {0};
    struct training run = training_small();
    run.visit = check_evaluation;
    run.context = losses;
    run.steps = 2; /* and the run goes on afterwards */
    assert_int_equal(training_run(&run), 0);
    assert_true(fabs(losses[0] - losses[2]) <= 1e-6 * losses[2]);
    run.mesh.side[SIDE_SHARD] = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    assert_int_equal(training_run(&run), 0);
    assert_true(fabs((losses[0] + losses[1]) / 2 - losses[2]) <= 1e-6 * losses[2]);
}

/* A rank that ended earlier than another would leave that one in a collective. */
static void all_stop_after_the_step_in_which_one_asks(void **state)
{
    (void)state;
    enum { RANKS = 4, STEPS = 6, NEVER = 99 };
    static const int told[][RANKS] = {
        {NEVER, NEVER, NEVER, NEVER},
        {0, NEVER, NEVER, NEVER},
        {NEVER, NEVER, NEVER, 2},
        {4, 3, NEVER, 5},
        {2, 2, 2, 2},
    };
    static const struct mesh meshes[] = {MESH(1, 1, 1), MESH(1, 1, 2), MESH(1, 1, 4), MESH(1, 2, 2)};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
            struct training run = training_small();
            int last[RANKS], expected = STEPS - 1, ranks = mesh_size(meshes[m]);
            run.mesh = meshes[m];
            run.strategy = STRATEGY_HYBRID_SHARD;
            run.steps = STEPS;
            run.told_at = told[i];
            run.last = last;
            for (int rank = 0; rank < ranks; rank++)
                expected = told[i][rank] < expected ? told[i][rank] : expected;
            assert_int_equal(training_run(&run), 0);
            for (int rank = 0; rank < ranks; rank++)
                assert_int_equal(last[rank], expected);
        }
    }
}

static void initialisation_does_not_depend_on_the_world(void **state)
{
    (void)state;
    struct training run = training_small();
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, NULL);
    size_t bytes = (size_t)model_parameters(model) * sizeof(float);
    float *one = calloc(1, bytes), *two = calloc(1, bytes);
    assert_non_null(one);
    assert_non_null(two);
    run.steps = 0;
    run.params = one;
    assert_int_equal(training_run(&run), 0);
    run.params = two;
    run.mesh.side[SIDE_SHARD] = 2;
    const enum strategy strategies[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_FULL_SHARD};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        run.strategy = strategies[i];
        memset(two, 0, bytes);
        assert_int_equal(training_run(&run), 0);
        assert_int_equal(memcmp(one, two, bytes), 0);
    }
    double squares = 0;
    for (int64_t i = 0; i < 48 * 32; i++)
        squares += (double)one[i] * (double)one[i]; /* wte */
    assert_true(fabs(sqrt(squares / (48 * 32)) / 0.02 - 1) < 0.1);
    free(one);
    free(two);
}

/* ---- ranks that disagree or go away ---- */

struct pair {
    struct kv_store store;
    struct training run[2];
    struct muster_error err[2];
    int leaves_after[2]; /* steps; -1: stays */
    int64_t memory_limit[2];
    bool lacks_room[2];
    const char *saves_to; /* NULL: saves nothing */
};

static int find_no_room(void *context, struct muster_error *err)
{
    (void)context;
    return error_set(err, MUSTER_E_NOMEM, "no room for a library");
}

static int pair_body(int rank, int world_size, void *context)
{
    struct pair *pair = context;
    struct training *run = &pair->run[rank];
    (void)world_size;
    GUARD(guard_model) struct model *model = gpt2_create(&run->gpt, &pair->err[rank]);
    struct trainer_options options = training_options(run, rank);
    options.store = &pair->store;
    options.timeout_ns = 10 * NS_PER_S;
    options.memory_limit = pair->memory_limit[rank];
    options.room = pair->lacks_room[rank] ? find_no_room : NULL;
    GUARD(guard_trainer)
    struct trainer *trainer = model ? trainer_create(model, &options, &pair->err[rank]) : NULL;
    double loss;
    for (int step = 0; trainer && step < 4; step++) {
        int32_t tokens[8 * 16], targets[8 * 16];
        struct trainer_step_values values = training_values(run, step);
        if (step == pair->leaves_after[rank])
            return 0;
        training_batch(run, rank, step, tokens, targets);
        struct trainer_stats stats;
        if (trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, &pair->err[rank]))
            return trainer_evaluate(trainer, &(struct batch){{tokens, targets}}, &loss,
                                    NULL); /* the run is over: -1 again */
        if (stats.comm_ns <= 0 || stats.exposed_ns > stats.comm_ns)
            return error_set(&pair->err[rank], MUSTER_E_STATE, "%lld ns exposed of %lld",
                             (long long)stats.exposed_ns, (long long)stats.comm_ns);
    }
    if (trainer && pair->saves_to)
        return files_save(trainer, pair->saves_to, &pair->err[rank]);
    return trainer ? 0 : -1;
}

static void run_pair(struct pair *pair, struct training run)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_non_null(memory);
    pair->store = kv_memory_store(memory);
    run.mesh.side[SIDE_SHARD] = 2;
    for (int i = 0; i < 2; i++) {
        if (!pair->run[i].samples)
            pair->run[i] = run;
    }
    (void)rank_threads_run(2, pair_body, pair);
    kv_memory_destroy(memory);
}

static void ranks_with_other_plans_are_told(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    struct pair pair = {.leaves_after = {-1, -1}};
    pair.run[1] = run;
    pair.run[1].mesh.side[SIDE_SHARD] = 2;
    pair.run[1].group_bytes = 64 << 10;
    run_pair(&pair, run);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(pair.err[rank].code, MUSTER_E_REFUSED);
        assert_non_null(strstr(pair.err[rank].text, "schedule of rank 1 differs from rank 0's"));
    }
}

static void a_peer_that_leaves_is_an_error_that_names_it(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    struct pair pair = {.leaves_after = {-1, 2}};
    run_pair(&pair, run);
    printf("%s\n", pair.err[0].text);
    assert_int_equal(pair.err[1].code, 0);
    assert_int_equal(pair.err[0].code, MUSTER_E_PEER);
    assert_non_null(strstr(pair.err[0].text, "rank 0, step 2: "));
    assert_non_null(strstr(pair.err[0].text, "rank 1"));
}

/* Far sooner than the time-out, whose error would be another. */
static void all_ranks_learn_a_rejection(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    struct pair pair = {.leaves_after = {-1, -1}, .memory_limit = {0, 1000}};
    run_pair(&pair, run);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(pair.err[rank].code, MUSTER_E_LIMIT);
        assert_non_null(strstr(pair.err[rank].text, "on rank 1, but"));
    }
    assert_ptr_equal(strstr(pair.err[0].text, "rank 1 cannot go on: "), pair.err[0].text);
}

static void all_ranks_learn_of_missing_room(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    struct pair pair = {.leaves_after = {-1, -1}, .lacks_room = {false, true}};
    run_pair(&pair, run);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(pair.err[rank].code, MUSTER_E_NOMEM);
    assert_string_equal(pair.err[0].text, "rank 1 cannot go on: no room for a library");
}

static void a_saved_file_says_what_made_it(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    char path[] = "/tmp/muster-save-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct pair pair = {.leaves_after = {-1, -1}, .saves_to = path};
    run_pair(&pair, run);
    assert_int_equal(pair.err[0].code, 0);
    assert_int_equal(pair.err[1].code, 0);
    (void)close(fd);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char head[4096] = {0};
    assert_true(fread(head, 1, sizeof head - 1, file) > 1000);
    (void)fclose(file);
    (void)remove(path);
    assert_non_null(strstr(head + 8, "\"architecture\":\"gpt2\""));
    assert_non_null(strstr(head + 8, "\"linear_layout\":\"in_out\""));
    assert_non_null(strstr(head + 8, "\"numerics\":\"positions="));
    assert_non_null(strstr(head + 8, "kernels="));
    assert_null(strstr(head + 8, "strategy=")); /* the same bytes for every mesh */
    pair = (struct pair){.leaves_after = {-1, -1}, .saves_to = "/nowhere/at/all"};
    run_pair(&pair, run); /* rank 0 cannot write, and nobody waits for it */
    assert_non_null(strstr(pair.err[0].text, "/nowhere/at/all"));
    assert_int_equal(pair.err[1].code, 0);
}

/* ---- gathers of a save ---- */

static struct comm_ops counting; /* comm_shm that counts the gathers of parameters */
static _Atomic int gathers;

static int count_gather(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                        struct device_stream *stream, struct muster_error *err)
{
    gathers += op->kind == COMM_ALL_GATHER;
    return comm_shm()->issue(comm, op, send, recv, stream, err);
}

struct saved {
    pthread_barrier_t together;
    const char *path;
    int before, after, groups, sharded; /* state of rank 0 */
};

static int save_after_the_last(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct saved *saved = run->context;
    if (step < run->steps)
        return 0;
    (void)pthread_barrier_wait(&saved->together);
    saved->before = gathers;
    (void)pthread_barrier_wait(&saved->together);
    if (files_save(trainer, saved->path, NULL))
        return -1;
    (void)pthread_barrier_wait(&saved->together);
    if (rank == 0) {
        saved->after = gathers;
        saved->groups = trainer_plan(trainer)->group_count;
        for (int g = 0; g < saved->groups; g++)
            saved->sharded += !trainer_plan(trainer)->groups[g].resident;
    }
    return 0;
}

static void saving_gathers_each_group_once(void **state)
{
    (void)state;
    enum { RANKS = 2 };
    counting = *comm_shm();
    counting.issue = count_gather;
    for (int strategy = STRATEGY_NO_SHARD; strategy <= STRATEGY_FULL_SHARD; strategy++) {
        char path[] = "/tmp/muster-save-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        (void)close(fd);
        struct saved saved = {.path = path};
        struct training run = training_small();
        run.mesh = (struct mesh)MESH(1, 1, RANKS);
        run.strategy = (enum strategy)strategy;
        run.steps = 1;
        run.comm = &counting;
        run.visit = save_after_the_last;
        run.context = &saved;
        assert_int_equal(pthread_barrier_init(&saved.together, NULL, RANKS), 0);
        assert_int_equal(training_run(&run), 0);
        (void)pthread_barrier_destroy(&saved.together);
        (void)remove(path);
        assert_true(saved.groups > 1);
        assert_int_equal(saved.sharded, strategy >= STRATEGY_SHARD_GRAD_OP ? saved.groups : 0);
        assert_int_equal(saved.after - saved.before, RANKS * saved.sharded);
    }
}

static int create_and_destroy(void *context)
{
    const struct training *run = context;
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run->gpt, &err);
    const struct trainer_options options = training_options(run, 0);
    GUARD(guard_trainer) struct trainer *trainer = model ? trainer_create(model, &options, &err) : NULL;
    if (!trainer)
        assert_int_equal(err.code, MUSTER_E_NOMEM);
    return trainer ? 0 : -1;
}

static void creation_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct training run = training_small();
    faults_sweep_absorbed(create_and_destroy, &run);
}

static void the_fingerprint_tells_what_ran(void **state)
{
    (void)state;
    struct training run = training_small();
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    struct trainer_options options = training_options(&run, 0);
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(model, &options, &err);
    assert_non_null(trainer);
    struct fingerprint print;
    trainer_fingerprint(trainer, &print);
    assert_int_equal(print.world_size, 1);
    assert_int_equal(print.threads, 1);
    assert_int_equal(print.batch, 8);
    assert_int_equal(print.positions, 16);
    assert_string_equal(print.strategy, "NO_SHARD");
    char kernels[FINGERPRINT_TEXT];
    (void)snprintf(kernels, sizeof kernels, "%s f32", kernels_cpu((unsigned)-1)->name);
    assert_string_equal(print.kernels, kernels);   /* with the instruction set that was chosen */
    assert_string_equal(print.embedding, "dense"); /* a rank alone */
    assert_non_null(strstr(print.blas, "OpenBLAS"));
    assert_string_equal(print.blas, kernels_cpu_blas()); /* not cut: the core's name stands at its end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_by_finite_differences),
        cmocka_unit_test(arenas_are_as_planned),
        cmocka_unit_test(bad_options_are_rejected),
        cmocka_unit_test(bad_steps_are_rejected),
        cmocka_unit_test(a_norm_that_is_not_finite_skips_the_step),
        cmocka_unit_test(evaluation_is_the_step_without_its_consequences),
        cmocka_unit_test(all_stop_after_the_step_in_which_one_asks),
        cmocka_unit_test(initialisation_does_not_depend_on_the_world),
        cmocka_unit_test(ranks_with_other_plans_are_told),
        cmocka_unit_test(a_peer_that_leaves_is_an_error_that_names_it),
        cmocka_unit_test(all_ranks_learn_a_rejection),
        cmocka_unit_test(all_ranks_learn_of_missing_room),
        cmocka_unit_test(a_saved_file_says_what_made_it),
        cmocka_unit_test(saving_gathers_each_group_once),
        cmocka_unit_test(creation_survives_every_failed_allocation),
        cmocka_unit_test(the_fingerprint_tells_what_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
