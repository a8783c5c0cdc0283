/* checkpoint_mesh_test.c - a checkpoint of any mesh goes to any other one and back: the state is equal to the
 * last bit, and five more steps there have the losses of one rank but for the order of sums (T1).
 *
 *     checkpoint_mesh_test [--full]    two meshes, or eight with each other */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/checksum.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "tests/unit/train/train_harness.h"

enum { BEFORE = 3, AFTER = 5, STEPS = BEFORE + AFTER, RANKS = 8, STATE_BYTES = 1 << 20 };
static bool full;

static const struct world {
    enum strategy strategy;
    struct mesh mesh;
    int micro_batches;
    enum pipe_schedule schedule;
    int chunks;
} worlds[] = {
    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 3, PIPE_INTERLEAVED, 2},
    {STRATEGY_SHARD_OPTIM, MESH(3, 1, 2), 3, PIPE_1F1B, 1},
    {STRATEGY_FULL_SHARD, MESH(1, 1, 1), 1, PIPE_1F1B, 1},
    {STRATEGY_NO_SHARD, MESH(1, 4, 1), 1, PIPE_1F1B, 1},
    {STRATEGY_FULL_SHARD, MESH(1, 1, 3), 2, PIPE_1F1B, 1},
    {STRATEGY_FULL_SHARD, MESH(2, 1, 2), 3, PIPE_1F1B, 1},
    {STRATEGY_NO_SHARD, MESH(4, 1, 1), 4, PIPE_GPIPE, 1},
    {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 3, PIPE_INTERLEAVED, 2},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* Of one run: a folder that it begins from, one that it saves in, and the state of each rank then. */
struct passage {
    const char *from, *to; /* NULL: neither */
    int saves_at;          /* number of a step, counted from the training's first */
    char *state[RANKS];    /* [STATE_BYTES]; NULL: not wanted */
    size_t used[RANKS];
};

static int load(const struct training *run, struct trainer *trainer, int rank, const char *folder)
{
    struct muster_error err = {0};
    struct checkpoint_load load = {
        .trainer = trainer, .folder = folder, .rank = rank, .world_size = mesh_size(run->mesh)};
    scope_buffer report = {0};
    load.report = &report;
    const int result = checkpoint_load(&load, &err);
    const bool right = result == 1 && load.manifest.run.step == BEFORE;
    if (!right)
        fprintf(stderr, "rank %d: not loaded: %d %s\n", rank, result, err.text);
    manifest_free(&load.manifest);
    return right ? 0 : -1;
}

static int save(const struct training *run, struct trainer *trainer, int rank, const char *folder)
{
    struct muster_error err = {0};
    struct checkpoint_save save = {.trainer = trainer,
                                   .folder = folder,
                                   .rank = rank,
                                   .retention = {.last = 1},
                                   .run = {.step = BEFORE, .samples = (int64_t)BEFORE * run->samples}};
    if (!checkpoint_save(&save, NULL, &err))
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return -1;
}

/* Every element that the rank holds of the training state: values and moments. */
static int read_state(struct trainer *trainer, char *state, size_t *used)
{
    for (int p = 0; p < trainer_model(trainer)->param_count; p++)
        for (int tensor = TRAINER_VALUE; tensor <= TRAINER_MOMENT2; tensor++) {
            struct trainer_part part;
            if (!trainer_part(trainer, p, (enum trainer_tensor)tensor, &part) || part.entry < 0)
                continue;
            const size_t bytes = (size_t)part.count * (size_t)dtype_size(part.dtype);
            assert_true(*used + bytes <= STATE_BYTES);
            if (bytes && trainer_read_part(trainer, &part, part.first, part.count, state + *used, NULL) < 0)
                return -1;
            *used += bytes;
        }
    return 0;
}

static int pass(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct passage *passage = run->context;
    if (step == 0 && passage->from && load(run, trainer, rank, passage->from) < 0)
        return -1;
    if (run->first_step + step != passage->saves_at)
        return 0;
    if (passage->state[rank]) {
        passage->used[rank] = 0;
        if (read_state(trainer, passage->state[rank], &passage->used[rank]) < 0)
            return -1;
    }
    return passage->to ? save(run, trainer, rank, passage->to) : 0;
}

static struct training run_of(const struct world *world, struct passage *passage)
{
    struct training run = training_small();
    run.gpt.layers = 6;
    run.samples = 12;
    run.strategy = world->strategy;
    run.mesh = world->mesh;
    run.micro_batches = world->micro_batches;
    run.schedule = world->schedule;
    run.chunks = world->chunks;
    run.visit = pass;
    run.context = passage;
    return run;
}

struct folder {
    char name[64];
};

static struct folder folder_begin(void)
{
    struct folder folder = {"/tmp/muster-checkpoint-mesh-XXXXXX"};
    assert_non_null(mkdtemp(folder.name));
    return folder;
}

static void folder_end(const struct folder *folder)
{
    int64_t *steps;
    const int count = folder_list(folder->name, &steps, NULL);
    for (int i = 0; i < count; i++)
        assert_int_equal(folder_remove(folder->name, steps[i], NULL), 0);
    mem_free(steps);
    assert_int_equal(rmdir(folder->name), 0);
}

/* One rank's losses, and the bound of T1 for other orders of sums. */
static double one_rank(double losses[STEPS])
{
    double other[STEPS];
    struct passage none = {.saves_at = -1};
    struct training run = run_of(&(struct world){STRATEGY_NO_SHARD, MESH(1, 1, 1), 1, PIPE_1F1B, 1}, &none);
    run.steps = STEPS;
    run.losses = losses;
    assert_int_equal(training_run(&run), 0);
    run.order = ORDER_REVERSED;
    run.losses = other;
    assert_int_equal(training_run(&run), 0);
    return fmax(1e-6, 3 * training_deviation(other, losses, STEPS));
}

/* The checkpoint of world `from` is loaded in `to`, saved there, and loaded back; and `to` goes on. */
static double there_and_back(int from, int to, const struct passage *first, const double *losses)
{
    const struct folder middle = folder_begin();
    struct passage there = {.from = first->to, .to = middle.name, .saves_at = BEFORE},
                   back = {.from = middle.name, .saves_at = BEFORE};
    double found[AFTER];
    struct training run = run_of(&worlds[to], &there);
    run.first_step = BEFORE;
    run.steps = AFTER;
    run.losses = found;
    assert_int_equal(training_run(&run), 0);
    run = run_of(&worlds[from], &back);
    run.first_step = BEFORE;
    run.steps = 0;
    const int ranks = mesh_size(worlds[from].mesh);
    for (int r = 0; r < ranks; r++)
        assert_non_null(back.state[r] = malloc(STATE_BYTES));
    assert_int_equal(training_run(&run), 0);
    for (int r = 0; r < ranks; r++) {
        assert_true(first->used[r] > 0 && back.used[r] == first->used[r]);
        assert_memory_equal(back.state[r], first->state[r], first->used[r]);
        free(back.state[r]);
    }
    folder_end(&middle);
    return training_deviation(found, losses + BEFORE, AFTER);
}

static void any_mesh_goes_to_any_other_and_back(void **state)
{
    (void)state;
    const int count = full ? WORLDS : 2;
    double losses[STEPS];
    const double bound = one_rank(losses);
    for (int from = 0; from < count; from++) {
        const struct folder folder = folder_begin();
        struct passage first = {.to = folder.name, .saves_at = BEFORE};
        struct training run = run_of(&worlds[from], &first);
        double worst = 0;
        run.steps = BEFORE;
        for (int r = 0; r < mesh_size(run.mesh); r++)
            assert_non_null(first.state[r] = malloc(STATE_BYTES));
        assert_int_equal(training_run(&run), 0);
        for (int to = full ? 0 : 1; to < count; to++)
            worst = fmax(worst, there_and_back(from, to, &first, losses));
        char text[MESH_TEXT];
        printf("%s %s: losses elsewhere %.1e apart, bound %.1e\n", mesh_text(run.mesh, text, sizeof text),
               strategy_name(run.strategy), worst, bound);
        assert_true(worst <= bound);
        for (int r = 0; r < mesh_size(run.mesh); r++)
            free(first.state[r]);
        folder_end(&folder);
        if (!full)
            break;
    }
}

/* Writes the manifest again as it was when a mesh had fewer sides. */
static void age_manifest(const char *folder, const char *later_sides)
{
    char path[128];
    struct muster_error err = {0};
    scope_buffer text = {0};
    struct checksum table;
    (void)snprintf(path, sizeof path, "%s/step-%d/manifest.json", folder, BEFORE);
    assert_int_equal(io_read_file(path, 1 << 20, &text, &err), 0);
    char *sides = strstr(text.data, later_sides), *end = strstr(text.data, ",\n\"crc32c\":\"");
    assert_true(sides && end > sides);
    const size_t gone = strlen(later_sides);
    memmove(sides, sides + gone, (size_t)(end - sides) - gone);
    checksum_make(&table, true);
    const size_t length = (size_t)(end - text.data) - gone;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fwrite(text.data, 1, length, file);
    (void)fprintf(file, ",\n\"crc32c\":\"%08x\"}\n", checksum_add(&table, 0, text.data, (int64_t)length));
    assert_int_equal(fclose(file), 0);
}

static void sides_that_a_manifest_lacks_are_1(void **state)
{
    (void)state;
    static const struct {
        int world;
        const char *later;
    } old[] = {{0, ",\"expert\":1,\"context\":1,\"tensor\":1"}, {3, "\"pipeline\":1,"}};
    for (int i = 0; i < 2; i++) {
        const struct folder folder = folder_begin();
        struct passage first = {.to = folder.name, .saves_at = BEFORE},
                       next = {.from = folder.name, .saves_at = -1};
        struct training run = run_of(&worlds[old[i].world], &first);
        run.steps = BEFORE;
        assert_int_equal(training_run(&run), 0);
        age_manifest(folder.name, old[i].later);
        run = run_of(&worlds[1], &next);
        run.first_step = BEFORE;
        run.steps = 1;
        assert_int_equal(training_run(&run), 0);
        folder_end(&folder);
    }
}

int main(int argc, char **argv)
{
    full = argc > 1 && !strcmp(argv[1], "--full");
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_mesh_goes_to_any_other_and_back),
                                       cmocka_unit_test(sides_that_a_manifest_lacks_are_1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
