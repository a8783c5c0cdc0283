/* files.c - see files.h. */
#include "trainer/labelled/files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "trainer/labelled/read.h"

void labelled_files_free(struct labelled_files *files)
{
    if (!files)
        return;
    mem_free(files->path);
    walk_free(&files->walk);
    *files = (struct labelled_files){0};
}

/* "unsup" holds texts without a label (aclImdb). */
static int may_be_label(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "unsup") != 0;
}

/* Leaves out what is no text of its own: lists of words, addresses. */
static void keep_texts(struct walk *walk, bool (*is_one)(const char *path))
{
    int kept = 0;
    for (int i = 0; i < walk->count; i++) {
        if (is_one(walk->file[i].path))
            walk->file[kept++] = walk->file[i];
        else
            mem_free(walk->file[i].path);
    }
    walk->count = kept;
}

static bool is_text_file(const char *path)
{
    const size_t length = strlen(path);
    return length > 4 && !strcmp(path + length - 4, ".txt");
}

/* The texts of all folders in a folder. */
static int add_labels(struct labelled_files *files, struct dirent **entries, int count,
                      struct muster_error *err)
{
    for (int i = 0; i < count; i++) {
        scope_free char *inside = mem_printf("%s/%s", files->path, entries[i]->d_name);
        if (!inside)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int is = io_is_folder(inside, err);
        if (is < 0 || (is && walk_path(&files->walk, inside, err) < 0))
            return -1;
    }
    keep_texts(&files->walk, is_text_file);
    return 0;
}

static int add_folders(struct labelled_files *files, struct muster_error *err)
{
    struct dirent **entries = NULL;
    const int count = scandir(files->path, &entries, may_be_label, alphasort);
    if (count < 0)
        return error_errno(err, "cannot read folder %s", files->path);
    const int result = add_labels(files, entries, count, err);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries); /* of scandir, as these */
    return result;
}

/* PATH/train or PATH/test, where PATH has folders of both parts; else PATH itself. */
static int choose_part(struct labelled_files *files, const char *path, enum labelled_part part,
                       struct muster_error *err)
{
    scope_free char *train = mem_printf("%s/train", path), *test = mem_printf("%s/test", path);
    if (!train || !test)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int has_train = io_is_folder(train, err), has_test = has_train < 0 ? -1 : io_is_folder(test, err);
    if (has_test < 0)
        return -1;
    files->has_test = has_test;
    const bool inside = part == LABELLED_TRAIN ? has_train : has_test;
    files->path = inside ? take_pointer(part == LABELLED_TRAIN ? &train : &test) : mem_strdup(path);
    return files->path ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

/* A folder of tables, or of folders by label. */
static int add_inside(struct labelled_files *files, struct muster_error *err)
{
    if (walk_path(&files->walk, files->path, err) < 0)
        return -1;
    keep_texts(&files->walk, labelled_is_table);
    if (files->walk.count)
        return 0;
    files->folders = true;
    return add_folders(files, err);
}

int labelled_find(struct labelled_files *files, const char *path, enum labelled_part part,
                  const char *setting, struct muster_error *err)
{
    *files = (struct labelled_files){.walk.name = setting};
    if (choose_part(files, path, part, err) < 0)
        return -1;
    const int folder = io_is_folder(files->path, err);
    if (folder < 0 || (folder ? add_inside(files, err) : walk_path(&files->walk, files->path, err)) < 0)
        return -1;
    if (!folder)
        keep_texts(&files->walk, labelled_is_table);
    if (files->walk.count)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     folder
                         ? "%s %s holds no labelled texts: no .csv, .tsv or .jsonl, and no folders by "
                           "label with .txt files"
                         : "%s %s is no file of labelled texts: its name must end in .csv, .tsv or .jsonl, "
                           "and it must not be empty",
                     setting, files->path);
}
