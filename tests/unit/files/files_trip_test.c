/* files_trip_test.c - models out of trainers into files and back, on 1, 2 and 4 ranks: the same bytes. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/files/files.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"
#include "tests/unit/train/train_harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[FOLDER_PATH];

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "files");
}

static int remove_folder(void **state)
{
    (void)state;
    return folder_remove(folder);
}

static const struct architecture gpt2 = {
    .kind = ARCHITECTURE_GPT2,
    .gpt2 = {.layers = 2, .channels = 32, .heads = 4, .vocab = 48, .max_positions = 20}};

/* What every rank does with its trainer. */
struct trip {
    const char *in, *out; /* NULL: none */
    struct files_export what;
    struct muster_error err[4];
};

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct trip *trip = run->context;
    (void)step;
    if (trip->in) {
        GUARD(guard_files) struct files *files = files_open(trip->in, &trip->err[rank]);
        if (!files || files_match(files, trainer_model(trainer), &gpt2, &trip->err[rank]) ||
            files_load(files, trainer, &trip->err[rank]))
            return -1;
    }
    return trip->out ? files_export(trainer, trip->out, &trip->what, &trip->err[rank]) : 0;
}

static int run_trip(struct trip *trip, int ranks, enum strategy strategy)
{
    struct training run = training_small();
    run.mesh = (struct mesh)MESH(1, 1, ranks);
    run.strategy = strategy;
    run.steps = 0;
    run.visit = visit;
    run.context = trip;
    return training_run(&run);
}

static struct buffer read_all(const char *path)
{
    struct buffer out = {0};
    struct muster_error err = {0};
    if (io_read_file(path, 1 << 24, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

static void check_same(const char *first, const char *second, const char *name)
{
    scope_free char *a = mem_printf("%s/%s", first, name), *b = mem_printf("%s/%s", second, name);
    scope_buffer x = read_all(a), y = read_all(b);
    assert_int_equal(x.length, y.length);
    assert_memory_equal(x.data, y.data, x.length);
}

/* Returns the number of files. */
static int check_all(const char *first, const char *second)
{
    int count = 0;
    DIR *dir = opendir(first);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_type == DT_DIR)
            continue;
        check_same(first, second, entry->d_name);
        count++;
    }
    assert_int_equal(closedir(dir), 0);
    return count;
}

static void a_round_trip_is_equal_to_the_byte(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    for (int t = 0; t < 2; t++) {
        for (int64_t shard = 0; shard <= 30000; shard += 30000) {
            scope_free char *first = mem_printf("%s/first-%d-%d", folder, t, (int)shard);
            struct trip trip = {
                .out = first,
                .what = {.format = FILES_HF, .dtype = types[t], .shard_bytes = shard, .architecture = &gpt2}};
            assert_int_equal(run_trip(&trip, 1, STRATEGY_NO_SHARD), 0);
            for (int ranks = 1; ranks <= 4; ranks *= 2) {
                for (int strategy = STRATEGY_NO_SHARD; strategy <= STRATEGY_FULL_SHARD; strategy++) {
                    scope_free char *second =
                        mem_printf("%s/second-%d-%d-%d-%d", folder, t, (int)shard, ranks, strategy);
                    trip.in = first;
                    trip.out = second;
                    trip.what.folder = first;
                    assert_int_equal(run_trip(&trip, ranks, (enum strategy)strategy), 0);
                    assert_int_equal(check_all(first, second), shard ? (t ? 4 : 7) : 2);
                }
            }
        }
    }
}

static void put(const char *path, const char *name, const void *data, size_t length)
{
    scope_free char *file = mem_printf("%s/%s", path, name);
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, length, out), length);
    assert_int_equal(fclose(out), 0);
}

static bool is_there(const char *path, const char *name)
{
    scope_free char *file = mem_printf("%s/%s", path, name);
    return !access(file, F_OK);
}

static void a_folder_is_complete_and_has_nothing_old(void **state)
{
    (void)state;
    scope_free char *from = mem_printf("%s/from", folder), *to = mem_printf("%s/to", folder);
    struct trip trip = {.out = from, .what = {.format = FILES_HF, .dtype = DTYPE_F32, .architecture = &gpt2}};
    assert_int_equal(run_trip(&trip, 1, STRATEGY_NO_SHARD), 0);
    put(from, "tokenizer.json", "{}", 2);
    put(from, "merges.txt", "a b", 3);
    put(from, "notes.txt", "mine", 4);
    assert_int_equal(mkdir(to, 0700), 0);
    put(to, "model-00001-of-00009.safetensors", "old", 3);
    put(to, "model.safetensors.index.json", "old", 3);
    put(to, "mine.safetensors", "kept", 4);
    trip = (struct trip){
        .in = from,
        .out = to,
        .what = {.format = FILES_HF, .dtype = DTYPE_BF16, .architecture = &gpt2, .folder = from}};
    assert_int_equal(run_trip(&trip, 2, STRATEGY_FULL_SHARD), 0);
    assert_true(is_there(to, "tokenizer.json") && is_there(to, "merges.txt") &&
                is_there(to, "mine.safetensors"));
    assert_false(is_there(to, "notes.txt") || is_there(to, "model-00001-of-00009.safetensors") ||
                 is_there(to, "model.safetensors.index.json"));
    scope_free char *path = mem_printf("%s/config.json", to);
    scope_buffer config = read_all(path);
    assert_non_null(strstr(config.data, "\"dtype\": \"bfloat16\""));
}

static void check_fails(const char *path, int code, const char *says)
{
    struct muster_error err = {0};
    GUARD(guard_files) struct files *files = files_open(path, &err);
    assert_null(files);
    if ((int)err.code != code || !strstr(err.text, says))
        fail_msg("%s: %d %s, not %s", path, err.code, err.text, says);
}

static void damaged_folders_are_errors(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"../from/model.safetensors\"}}",
                      absent[] = "{\"weight_map\":{\"a\":\"model.safetensors\"}}",
                      odd[] = "{\"weight_map\":{\"a\":3}}";
    scope_free char *bad = mem_printf("%s/bad", folder), *good = mem_printf("%s/from", folder);
    assert_int_equal(mkdir(bad, 0700), 0);
    check_fails("/nowhere/at/all", MUSTER_E_NOT_FOUND, "/nowhere/at/all");
    check_fails(bad, MUSTER_E_NOT_FOUND, "is no folder of a model");
    scope_free char *config = mem_printf("%s/config.json", good);
    scope_buffer text = read_all(config);
    put(bad, "config.json", text.data, text.length);
    check_fails(bad, MUSTER_E_NOT_FOUND, "neither model.safetensors nor");
    put(bad, "model.safetensors.index.json", index, strlen(index));
    check_fails(bad, MUSTER_E_INVALID, "names '../from/model.safetensors'");
    put(bad, "model.safetensors.index.json", odd, strlen(odd));
    check_fails(bad, MUSTER_E_INVALID, "names ''");
    put(bad, "model.safetensors.index.json", "{}", 2);
    check_fails(bad, MUSTER_E_INVALID, "no weight_map");
    scope_free char *model = mem_printf("%s/model.safetensors", good);
    scope_buffer tensors = read_all(model);
    put(bad, "x.safetensors", tensors.data, tensors.length);
    put(bad, "model.safetensors.index.json", absent, strlen(absent));
    check_fails(bad, MUSTER_E_NOT_FOUND, "bad/model.safetensors");
    put(bad, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"x.safetensors\"}}", 36);
    check_fails(bad, MUSTER_E_INVALID, "the index has tensor 'a' in x.safetensors");
    put(bad, "model.safetensors", tensors.data, tensors.length - 1);
    check_fails(bad, MUSTER_E_INVALID, "cut off");
    put(bad, "model.safetensors", tensors.data, 5);
    check_fails(bad, MUSTER_E_INVALID, "too few");
}

/* lm_head.weight next to wte.weight: read if equal, refused if different. */
static void a_second_copy_of_a_tied_tensor_is_compared(void **state)
{
    (void)state;
    scope_free char *from = mem_printf("%s/from", folder), *twice = mem_printf("%s/twice", folder);
    scope_free char *path = mem_printf("%s/model.safetensors", from);
    scope_buffer file = read_all(path), both = {0};
    uint64_t length;
    memcpy(&length, file.data, 8);
    scope_free char *header = mem_strndup(file.data + 8, length);
    const char *wte = strstr(header, "\"transformer.wte.weight\"");
    long long first, end, data = (long long)(file.length - 8 - length);
    assert_int_equal(sscanf(strstr(wte, "data_offsets") + 14, "[%lld,%lld]", &first, &end), 2);
    *strrchr(header, '}') = ' ';
    (void)buffer_printf(
        &both, "%s,\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[48,32],\"data_offsets\":[%lld,%lld]}}",
        header, data, data + end - first);
    uint64_t new_length = both.length;
    scope_buffer out = {0};
    (void)buffer_append(&out, &new_length, 8);
    (void)buffer_append(&out, both.data, both.length);
    (void)buffer_append(&out, file.data + 8 + length, (size_t)data);
    (void)buffer_append(&out, file.data + 8 + length + first, (size_t)(end - first));
    assert_int_equal(mkdir(twice, 0700), 0);
    scope_free char *config = mem_printf("%s/config.json", from);
    scope_buffer text = read_all(config);
    put(twice, "config.json", text.data, text.length);
    put(twice, "model.safetensors", out.data, out.length);
    struct trip trip = {.in = twice};
    assert_int_equal(run_trip(&trip, 2, STRATEGY_FULL_SHARD), 0);
    out.data[out.length - 1] ^= 1;
    put(twice, "model.safetensors", out.data, out.length);
    assert_int_not_equal(run_trip(&trip, 1, STRATEGY_NO_SHARD), 0);
    assert_non_null(strstr(trip.err[0].text, "transformer.wte.weight and lm_head.weight differ"));
}

static void a_place_that_cannot_be_written_is_known_before(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct files_export what = {.format = FILES_SAFETENSORS};
    scope_free char *path = mem_printf("%s/probed", folder), *there = mem_printf("%s/x.pth", folder);
    assert_int_equal(files_export_probe("/nowhere/at/all", &what, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_int_equal(files_export_probe(path, &what, &err), 0);
    assert_int_equal(access(path, F_OK), -1);                     /* nothing was left */
    assert_int_equal(files_export_probe(folder, &what, &err), 0); /* model.safetensors in it */
    what.format = FILES_PTH;
    assert_int_equal(files_export_probe(there, &what, &err), 0);
    what.format = FILES_HF;
    assert_int_equal(files_export_probe(path, &what, &err), 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(files_export_probe("/proc/nowhere", &what, &err), -1);
}

static int open_once(void *context)
{
    struct muster_error err = {0};
    GUARD(guard_files) struct files *files = files_open(context, &err);
    GUARD(guard_model) struct model *model = files ? architecture_model(&gpt2, &err) : NULL;
    return model && !files_match(files, model, &gpt2, &err) ? 0 : -1;
}

static void survives_no_memory(void **state)
{
    (void)state;
    scope_free char *from = mem_printf("%s/from", folder);
    faults_sweep(open_once, from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_trip_is_equal_to_the_byte),
        cmocka_unit_test(a_folder_is_complete_and_has_nothing_old),
        cmocka_unit_test(damaged_folders_are_errors),
        cmocka_unit_test(a_second_copy_of_a_tied_tensor_is_compared),
        cmocka_unit_test(a_place_that_cannot_be_written_is_known_before),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
