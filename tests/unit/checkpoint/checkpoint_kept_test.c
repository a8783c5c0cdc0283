/* checkpoint_kept_test.c - objects kept from a checkpoint to the next change no byte of it: neither of a
 * small file nor of a file that waits for the disk; headers that were read, and files that are written over.
 */
#include "tests/support/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/rank_header.h"
#include "tests/unit/train/train_harness.h"

enum { RANKS = 2, STEPS = 3, TAKEN_STEPS = 6, FILE_LIMIT = 64 << 20 };

/* ---- checkpoints ---- */

struct both {
    char kept[64], alone[64];
    struct checkpoint_kept keeps[RANKS];
};

static int save(struct trainer *trainer, int rank, int64_t step, const char *folder, int64_t last,
                struct checkpoint_kept *kept)
{
    struct muster_error err = {0};
    const struct checkpoint_save what = {.trainer = trainer,
                                         .folder = folder,
                                         .rank = rank,
                                         .retention = {.last = last},
                                         .kept = kept,
                                         .run = {.step = step, .samples = step * 8}};
    int result = checkpoint_save(&what, NULL, &err);
    if (result < 0)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return result;
}

static int save_both(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct both *b = run->context;
    if (step == 0)
        return 0;
    if (save(trainer, rank, step, b->kept, STEPS, &b->keeps[rank]) < 0 ||
        save(trainer, rank, step, b->alone, STEPS, NULL) < 0)
        return -1;
    if (step < STEPS)
        return 0;
    const struct rank_header *headers = b->keeps[rank].headers; /* rank 0's, of all ranks */
    const bool known = !headers == (rank > 0) && (!headers || (headers[0].count && headers[1].count));
    checkpoint_kept_free(&b->keeps[rank]);
    return known ? 0 : -1;
}

static void same_file(const struct both *b, int64_t step, const char *name)
{
    scope_free char *first = mem_printf("%s/step-%lld/%s", b->kept, (long long)step, name),
                    *second = mem_printf("%s/step-%lld/%s", b->alone, (long long)step, name);
    scope_buffer kept = {0}, alone = {0};
    struct muster_error err = {0};
    assert_int_equal(io_read_file(first, FILE_LIMIT, &kept, &err), 0);
    assert_int_equal(io_read_file(second, FILE_LIMIT, &alone, &err), 0);
    assert_int_equal(kept.length, alone.length);
    assert_memory_equal(kept.data, alone.data, kept.length);
}

static void are_the_same(struct training run)
{
    struct both b = {.kept = "/tmp/muster-kept-XXXXXX", .alone = "/tmp/muster-alone-XXXXXX"};
    assert_non_null(mkdtemp(b.kept));
    assert_non_null(mkdtemp(b.alone));
    run.mesh = (struct mesh)MESH(1, 1, RANKS);
    run.strategy = STRATEGY_FULL_SHARD;
    run.steps = STEPS;
    run.context = &b;
    run.visit = save_both;
    assert_int_equal(training_run(&run), 0);
    for (int64_t step = 1; step <= STEPS; step++) {
        same_file(&b, step, "rank-0.safetensors");
        same_file(&b, step, "rank-1.safetensors");
        same_file(&b, step, MANIFEST_NAME);
        (void)folder_remove(b.kept, step, NULL);
        (void)folder_remove(b.alone, step, NULL);
    }
    assert_int_equal(rmdir(b.kept), 0);
    assert_int_equal(rmdir(b.alone), 0);
}

static void what_is_kept_changes_no_byte(void **state)
{
    (void)state;
    are_the_same(training_small());
}

static void nor_of_a_file_that_waits_for_the_disk(void **state)
{
    (void)state;
    struct training run = training_small();
    run.gpt.layers = 6;
    run.gpt.channels = 160; /* more than the blocks in memory */
    are_the_same(run);
}

/* ---- files of older ones ---- */

/* One stays; of the first one somebody has opened a file, of the second one another has a second name. */
struct taken {
    char folder[64], link[80];
    struct checkpoint_kept kept;
    ino_t inode[TAKEN_STEPS + 1];
    int reader;
    struct buffer read, linked; /* the bytes before */
    bool leases;                /* the file system has them: else no file is taken */
};

static char *file_of(const struct taken *t, int64_t step)
{
    char *path = mem_printf("%s/step-%lld/rank-0.safetensors", t->folder, (long long)step);
    assert_non_null(path);
    return path;
}

static bool has_leases(const char *path)
{
    scope_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && !fcntl(fd, F_SETLEASE, F_WRLCK);
}

static int save_taking(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct taken *t = run->context;
    struct muster_error err = {0};
    struct stat status;
    if (step == 0)
        return 0;
    if (save(trainer, rank, step, t->folder, 1, &t->kept) < 0)
        return -1;
    scope_free char *path = file_of(t, step);
    if (stat(path, &status) < 0)
        return -1;
    t->inode[step] = status.st_ino;
    if (step == 1) {
        t->leases = has_leases(path);
        t->reader = open(path, O_RDONLY | O_CLOEXEC);
        return t->reader < 0 ? -1 : io_read_file(path, FILE_LIMIT, &t->read, &err);
    }
    return step > 2 ? 0 : link(path, t->link) < 0 ? -1 : io_read_file(path, FILE_LIMIT, &t->linked, &err);
}

static void files_are_taken_where_nobody_else_has_them(void **state)
{
    (void)state;
    struct taken t = {.folder = "/tmp/muster-taken-XXXXXX", .reader = -1};
    struct training run = training_small();
    scope_buffer now = {0};
    struct muster_error err = {0};
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(t.link, sizeof t.link, "%s/link", t.folder); /* fits */
    run.steps = TAKEN_STEPS;
    run.context = &t;
    run.visit = save_taking;
    assert_int_equal(training_run(&run), 0);
    /* after each, the checkpoint before is removed, and the next gets its files */
    assert_int_not_equal(t.inode[3], t.inode[1]);
    assert_int_not_equal(t.inode[4], t.inode[2]);
    for (int step = 5; step <= TAKEN_STEPS; step++)
        assert_true(!t.leases || t.inode[step] == t.inode[step - 2]);
    char *bytes = buffer_reserve(&now, t.read.length);
    assert_non_null(bytes);
    assert_int_equal(pread(t.reader, bytes, t.read.length, 0), t.read.length);
    assert_memory_equal(bytes, t.read.data, t.read.length);
    buffer_clear(&now);
    assert_int_equal(io_read_file(t.link, FILE_LIMIT, &now, &err), 0);
    assert_int_equal(now.length, t.linked.length);
    assert_memory_equal(now.data, t.linked.data, now.length);
    (void)close(t.reader); /* it was only read */
    checkpoint_kept_free(&t.kept);
    assert_int_equal(unlink(t.link), 0);
    assert_int_equal(folder_remove(t.folder, TAKEN_STEPS, NULL), 0);
    assert_int_equal(rmdir(t.folder), 0); /* no spare folder is left */
    buffer_free(&t.read);
    buffer_free(&t.linked);
}

/* ---- headers ---- */

static void put(struct buffer *text, const char *from)
{
    buffer_clear(text);
    assert_int_equal(buffer_text(text, from), 0);
}

static void a_pair_is_found_behind_a_place(void **state)
{
    (void)state;
    scope_buffer text = {0};
    put(&text, "{\"a\":\"0 12\",\"b\":\"x\",\"a\":\"0 12\"}");
    assert_int_equal(rank_header_find(&text, 0, "a", "0 12"), 6);
    assert_int_equal(rank_header_find(&text, 6, "a", "0 12"), 25);
    assert_int_equal(rank_header_find(&text, 0, "a", "0 1"), -1);
    assert_int_equal(rank_header_find(&text, 26, "a", "0 12"), -1);
    assert_int_equal(rank_header_find(&text, 400, "a", "0 12"), -1);
}

static void headers_are_the_same_but_for_their_digits(void **state)
{
    (void)state;
    struct rank_header header = {.bytes = 7};
    scope_buffer text = {0};
    put(&text, "{\"a\":\"0 12\",\"b\":\"5 af\"}");
    assert_false(rank_header_same(&header, &text, 7)); /* none is known */
    header.digits = mem_calloc(2, sizeof *header.digits);
    assert_non_null(header.digits);
    put(&header.text, text.data);
    header.digits[0] = (struct rank_header_digits){.at = 8, .count = 2};
    header.digits[1] = (struct rank_header_digits){.at = 19, .count = 2};
    header.count = 2;
    assert_true(rank_header_same(&header, &text, 7));
    assert_false(rank_header_same(&header, &text, 8)); /* a header of another size */
    put(&text, "{\"a\":\"0 ff\",\"b\":\"5 00\"}");
    assert_true(rank_header_same(&header, &text, 7));
    static const char *const others[] = {
        "{\"a\":\"1 12\",\"b\":\"5 af\"}", "{\"c\":\"0 12\",\"b\":\"5 af\"}",
        "{\"a\":\"0 1g\",\"b\":\"5 af\"}", "{\"a\":\"0 12\",\"b\":\"5 \\n\"}",
        "{\"a\":\"0 12\",\"b\":\"5 af\")", "{\"a\":\"0 12\",\"b\":\"5 af\"} ",
        "{\"a\":\"0 12\",\"b\":\"6 af\"}", "{\"a\":\"0 1F\",\"b\":\"5 af\"}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put(&text, others[i]);
        assert_false(rank_header_same(&header, &text, 7));
    }
    rank_header_clear(&header);
    assert_false(rank_header_same(&header, &text, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_changes_no_byte),
        cmocka_unit_test(nor_of_a_file_that_waits_for_the_disk),
        cmocka_unit_test(files_are_taken_where_nobody_else_has_them),
        cmocka_unit_test(a_pair_is_found_behind_a_place),
        cmocka_unit_test(headers_are_the_same_but_for_their_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
