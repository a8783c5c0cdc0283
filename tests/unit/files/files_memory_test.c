/* files_memory_test.c - an import and an export hold a param group and a few blocks a rank, never the model:
 * the growth of the process's peak, ranks as threads, after a step has touched all planned memory. */
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/files/files.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"
#include "tests/unit/train/train_harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Blocks of 256K elements: two for an export; for an import the blocks of files and of the trainer. */
enum { RANKS_MOST = 2, RANK_BYTES = 10 << 20 };

static const struct architecture gpt2 = {
    .kind = ARCHITECTURE_GPT2,
    .gpt2 = {.layers = 6, .channels = 512, .heads = 8, .vocab = 512, .max_positions = 16}};

static int64_t status_row(const char *name)
{
    scope_buffer text = {0};
    if (io_read_file("/proc/self/status", 1 << 16, &text, NULL) < 0 || !text.data)
        return -1;
    return text_row(text.data, name);
}

/* The peak is from now on. */
static bool reset_peak(void)
{
    scope_close int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "5", 1) == 1;
}

struct memory {
    pthread_barrier_t together;
    const char *folder;
    bool measured;
    int64_t before, exported, imported, group, model; /* bytes */
};

static int64_t measure(struct memory *m, int rank, int (*call)(struct memory *, struct trainer *),
                       struct trainer *trainer)
{
    int64_t peak = 0;
    (void)pthread_barrier_wait(&m->together);
    if (!rank) {
        m->measured = reset_peak();
        m->before = status_row("VmRSS");
    }
    (void)pthread_barrier_wait(&m->together);
    int failed = call(m, trainer);
    (void)pthread_barrier_wait(&m->together);
    if (!rank)
        peak = status_row("VmHWM");
    return failed ? -1 : peak - m->before;
}

static int export_all(struct memory *m, struct trainer *trainer)
{
    const struct files_export what = {.format = FILES_HF, .dtype = DTYPE_F32, .architecture = &gpt2};
    return files_export(trainer, m->folder, &what, NULL);
}

static int import_all(struct memory *m, struct trainer *trainer)
{
    GUARD(guard_files) struct files *files = files_open(m->folder, NULL);
    return !files || files_match(files, trainer_model(trainer), &gpt2, NULL) ||
           files_load(files, trainer, NULL);
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct memory *m = run->context;
    if (step < 1)
        return 0;
    const struct plan *plan = trainer_plan(trainer);
    int64_t exported = measure(m, rank, export_all, trainer),
            imported = measure(m, rank, import_all, trainer);
    if (rank)
        return 0;
    m->exported = exported;
    m->imported = imported;
    m->model = model_parameters(trainer_model(trainer)) * 4;
    for (int i = 0; i < plan->group_count; i++)
        m->group = plan->groups[i].padded * 4 > m->group ? plan->groups[i].padded * 4 : m->group;
    return 0;
}

static void neither_holds_the_model(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        char folder[FOLDER_PATH], name[64];
        assert_int_equal(folder_make(folder, "memory"), 0);
        struct memory m = {.folder = folder};
        assert_int_equal(pthread_barrier_init(&m.together, NULL, (unsigned)ranks), 0);
        struct training run = training_small();
        run.gpt = gpt2.gpt2;
        run.mesh = (struct mesh)MESH(1, 1, ranks);
        run.strategy = ranks > 1 ? STRATEGY_FULL_SHARD : STRATEGY_NO_SHARD;
        run.samples = 2;
        run.positions = 8;
        run.steps = 1;
        run.group_bytes = 1; /* each block a group */
        run.visit = visit;
        run.context = &m;
        assert_int_equal(training_run(&run), 0);
        (void)pthread_barrier_destroy(&m.together);
        static const char *const names[] = {"model.safetensors", "config.json"};
        for (int i = 0; i < 2; i++) {
            (void)snprintf(name, sizeof name, "%s/%s", folder, names[i]);
            assert_int_equal(unlink(name), 0);
        }
        assert_int_equal(rmdir(folder), 0);
        if (!m.measured || m.before < 0)
            skip_because("/proc/self/clear_refs cannot be written: the peak is not measured");
        int64_t limit = ranks * (m.group + RANK_BYTES);
        print_message(
            "%d ranks: model %lld KB, largest group %lld KB; export %lld KB, import %lld KB above the "
            "plan, at most %lld KB\n",
            ranks, (long long)(m.model >> 10), (long long)(m.group >> 10), (long long)(m.exported >> 10),
            (long long)(m.imported >> 10), (long long)(limit >> 10));
        assert_true(limit < m.model); /* or the test would say nothing */
        assert_true(m.exported >= 0 && m.exported <= limit);
        assert_true(m.imported <= limit); /* may be less than 0: not all planned pages are touched */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(neither_holds_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
