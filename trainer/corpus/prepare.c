/* prepare.c - see prepare.h: the order of the stages, and the keys of their inputs. */
#include "trainer/corpus/prepare.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/chat/chat.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/corpus/texts.h"
#include "trainer/data/prepared.h"
#include "trainer/tokens/tokenizer.h"

enum {
    PARTS = 4096, /* most parts, unless part_bytes demands more */
    FORMAT = 2    /* format of the work folder; a new number makes all results anew */
};

/* ---- the inputs, and keys of them ---- */

static uint64_t hash_file(uint64_t hash, const struct prepare *p, const struct walk_file *file)
{
    const char *name = file->path + strlen(p->settings->input);
    hash = text_hash(hash, name, strlen(name) + 1);
    hash = text_hash(hash, &file->bytes, sizeof file->bytes);
    hash = text_hash(hash, &file->mtime_ns, sizeof file->mtime_ns);
    return text_hash(hash, &file->ends, sizeof file->ends);
}

/* Joins consecutive files to parts of about the same size; a large file is a part. */
static int make_parts(struct prepare *p, uint64_t hash, struct muster_error *err)
{
    int64_t total = 0;
    for (int i = 0; i < p->files.count; i++)
        total += p->files.file[i].bytes;
    const int64_t least = p->settings->part_bytes, target = total / PARTS > least ? total / PARTS : least;
    p->part = mem_calloc((size_t)p->files.count, sizeof *p->part);
    if (!p->part)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of files");
    for (int i = 0; i < p->files.count; i++) {
        struct part *last = p->parts ? &p->part[p->parts - 1] : NULL;
        const struct walk_file *file = &p->files.file[i];
        if (!last || last->bytes + file->bytes > target) {
            last = &p->part[p->parts++];
            *last = (struct part){.first = i, .key = hash};
        }
        last->count++;
        last->bytes += file->bytes;
        last->key = hash_file(last->key, p, file);
    }
    return 0;
}

static int find_key(struct prepare *p, struct muster_error *err)
{
    p->key = corpus_settings_hash(p->settings, true);
    for (int i = 0; i < p->parts; i++)
        p->key = text_hash(p->key, &p->part[i].key, sizeof p->part[i].key);
    if (!*p->settings->tokenizer)
        return 0;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(p->settings->tokenizer, err);
    if (!tokenizer)
        return -1;
    const uint64_t fingerprint = tokenizer_fingerprint(tokenizer);
    p->key = text_hash(p->key, &fingerprint, sizeof fingerprint);
    return 0;
}

struct chat *prepare_open_chat(const struct corpus_settings *s, struct muster_error *err)
{
    const int is_folder = *s->tokenizer ? io_is_folder(s->tokenizer, err) : 0;
    const char *slash = strrchr(s->tokenizer, '/');
    scope_free char *folder = is_folder > 0 ? mem_strdup(s->tokenizer)
                              : slash       ? mem_strndup(s->tokenizer, (size_t)(slash - s->tokenizer))
                                            : mem_strdup(".");
    if (is_folder < 0 || !folder) {
        (void)(is_folder < 0 ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path"));
        return NULL;
    }
    struct chat *chat = chat_open(
        &(struct chat_options){.template_name = s->chat_template, .folder = *s->tokenizer ? folder : NULL},
        err);
    if (!chat)
        (void)error_wrap(err, "--chat_template");
    return chat;
}

/* The template changes the texts, as the lists of words do. */
static int hash_chat(const struct corpus_settings *s, uint64_t *hash, struct muster_error *err)
{
    if (!*s->chat_template)
        return 0;
    GUARD(guard_chat) struct chat *chat = prepare_open_chat(s, err);
    if (!chat)
        return -1;
    const uint64_t fingerprint = chat_fingerprint(chat);
    *hash = text_hash(*hash, &fingerprint, sizeof fingerprint);
    return 0;
}

static int read_lists(struct prepare *p, uint64_t *hash, struct muster_error *err)
{
    const struct corpus_settings *s = p->settings;
    if (*s->blocked_words && word_list_read(s->blocked_words, &p->blocked, hash, err) < 0)
        return error_wrap(err, "--blocked_words");
    if (*s->required_words && word_list_read(s->required_words, &p->required, hash, err) < 0)
        return error_wrap(err, "--required_words");
    return hash_chat(s, hash, err);
}

static int list_files(struct prepare *p, struct muster_error *err)
{
    p->files = (struct walk){.name = "--input_dir", .text_key = p->settings->text_key};
    if (walk_path(&p->files, p->settings->input, err) < 0)
        return -1;
    if (!p->files.count)
        return error_set(err, MUSTER_E_INVALID, "--input_dir %s holds no text: every file is empty or binary",
                         p->settings->input);
    for (int i = 0; i < p->files.count; i++)
        if (p->files.file[i].kind == WALK_TOKENS)
            return error_set(err, MUSTER_E_INVALID, "--input_dir: %s is a shard of tokens, not a text",
                             p->files.file[i].path);
    return 0;
}

/* ---- the folders ---- */

/* Refuses an output folder inside of the input: the result must not be read as input. */
static int check_folders(const struct prepare *p, struct muster_error *err)
{
    char input[PATH_MAX], output[PATH_MAX];
    if (!realpath(p->settings->input, input))
        return error_errno(err, "cannot read --input_dir %s", p->settings->input);
    if (!realpath(p->settings->output, output))
        return error_errno(err, "cannot use --output_dir %s", p->settings->output);
    const size_t length = strlen(input);
    if (!strncmp(output, input, length) && (output[length] == '/' || !output[length]))
        return error_set(err, MUSTER_E_INVALID,
                         "--output_dir %s is inside of --input_dir %s, and would be read too",
                         p->settings->output, p->settings->input);
    return 0;
}

static int open_work(struct prepare *p, struct muster_error *err)
{
    p->work = mem_printf("%s/.work", p->settings->output);
    scope_free char *lock = p->work ? mem_printf("%s/lock", p->work) : NULL;
    if (!lock)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (io_make_directories(p->work, 0755, err) < 0 || check_folders(p, err) < 0)
        return -1;
    p->lock = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (p->lock < 0)
        return error_errno(err, "cannot write %s", lock);
    if (flock(p->lock, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, MUSTER_E_BUSY, "another muster-train prepare writes to %s",
                         p->settings->output);
    return io_remove_unfinished(p->settings->output, err); /* files of a run that was killed */
}

static void remove_work(const struct prepare *p)
{
    DIR *folder = opendir(p->work);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_type != DT_DIR)
            (void)unlinkat(dirfd(folder), entry->d_name, 0); /* a file that stays does no harm */
    if (folder)
        (void)closedir(folder);
    (void)rmdir(p->work);
}

/* ---- the run ---- */

static const struct {
    const char *name;
    int (*run)(struct prepare *prepare, struct muster_error *err);
} stages[] = {{"reading", prepare_read},
              {"duplicates", prepare_decide},
              {"tokenizer", prepare_train},
              {"tokens", prepare_encode},
              {"shards", prepare_write}};

static int run_stages(struct prepare *p, struct muster_error *err)
{
    uint64_t hash = corpus_settings_hash(p->settings, false) + FORMAT;
    bool done;
    if (open_work(p, err) < 0 || list_files(p, err) < 0 || read_lists(p, &hash, err) < 0 ||
        make_parts(p, hash, err) < 0 || find_key(p, err) < 0)
        return -1;
    if (prepared_is(p->settings->output, p->key, &done, err) < 0)
        return -1;
    if (done) {
        log_info(p->log, "%s already has the result of this input and these settings", p->settings->output);
        return 0;
    }
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        if (stages[i].run(p, err) < 0)
            return error_wrap(err, "%s", stages[i].name);
        (void)malloc_trim(0); /* gives a stage's tables back to the system */
    }
    return 0;
}

static void close_run(struct prepare *p)
{
    if (p->lock >= 0)
        (void)close(p->lock); /* releases the lock */
    walk_free(&p->files);
    hash_set_free(&p->blocked);
    hash_set_free(&p->required);
    mem_free(p->part);
    mem_free(p->decisions);
    mem_free(p->tokenizer);
    mem_free(p->work);
}

int prepare_run(const struct corpus_settings *settings, const struct log_sink *log, struct muster_error *err)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct prepare prepare = {
        .settings = settings,
        .log = log,
        .threads = settings->workers ? (int)settings->workers
                   : processors > 0  ? (int)processors
                                     : 1,
        .lock = -1,
        .bands = minhash_bands_for(settings->near_threshold > 1 ? 1 : settings->near_threshold)};
    const int result = run_stages(&prepare, err);
    if (!result && !settings->keep_work)
        remove_work(&prepare);
    close_run(&prepare);
    return result;
}
