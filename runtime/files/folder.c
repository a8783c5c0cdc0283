/* folder.c - see folder.h. */
#include "runtime/files/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"
#include "runtime/files/adapter_json.h"
#include "runtime/files/config_json.h"

enum { COPIED_BYTES = 256 << 20 }; /* a tokenizer.json has up to some tens of megabytes */

static const char *const copied[] = {
    "tokenizer*",        "vocab*",     "merges.txt",     "special_tokens_map.json",
    "added_tokens.json", "*.tiktoken", "chat_template*", "generation_config.json"};

static int write_in_folder(const char *path, const char *name, const struct buffer *text,
                           struct muster_error *err)
{
    scope_free char *file = mem_printf("%s/%s", path, name);
    if (!file)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    return io_write_file_atomic(file, text->data ? text->data : "", text->length, 0666, err);
}

static int read_in_folder(const char *path, const char *name, size_t limit, struct buffer *out,
                          struct muster_error *err)
{
    scope_free char *file = mem_printf("%s/%s", path, name);
    if (!file)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    return io_read_file(file, limit, out, err) < 0 ? -1 : 0;
}

static int write_config(const char *path, const struct files_export *what, struct muster_error *err)
{
    scope_buffer old = {0}, new = {0}, marked = {0};
    const bool changed =
        architecture_classifies(what->architecture) && page_changes_config(what->architecture->page);
    if (what->folder && !changed) {
        if (read_in_folder(what->folder, "config.json", JSON_TEXT_LIMIT, &old, err) ||
            config_json_retype("config.json", old.data ? old.data : "", old.length, what->dtype, &new, err))
            return -1;
    } else if (config_json_format(what->architecture, what->dtype, &new, err)) {
        return -1;
    }
    if (what->quantized && config_json_mark("config.json", new.data, new.length, &marked, err))
        return -1;
    return write_in_folder(path, "config.json", what->quantized ? &marked : &new, err);
}

static bool is_copied(const char *name)
{
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        if (!fnmatch(copied[i], name, 0))
            return true;
    }
    return false;
}

static int copy_file(const char *from, const char *to, const char *name, struct muster_error *err)
{
    scope_buffer text = {0};
    return read_in_folder(from, name, COPIED_BYTES, &text, err) || write_in_folder(to, name, &text, err) ? -1
                                                                                                         : 0;
}

static void guard_folder(DIR **folder)
{
    if (*folder)
        (void)closedir(*folder);
}

static int copy_tokenizers(const char *from, const char *to, struct muster_error *err)
{
    GUARD(guard_folder) DIR *folder = opendir(from);
    if (!folder)
        return error_errno(err, "cannot read %s", from);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_type != DT_DIR && is_copied(entry->d_name) && copy_file(from, to, entry->d_name, err))
            return -1;
    }
    return 0;
}

static bool is_ours(const struct layout *layout, const char *name)
{
    char shard[LAYOUT_NAME];
    for (int i = 0; i < layout->file_count; i++) {
        if (!strcmp(name, layout_file_name(layout, i, shard)))
            return true;
    }
    return layout->file_count > 1 && !strcmp(name, "model.safetensors.index.json");
}

static int remove_old(const char *path, const struct layout *layout, struct muster_error *err)
{
    GUARD(guard_folder) DIR *folder = opendir(path);
    if (!folder)
        return error_errno(err, "cannot read %s", path);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (layout_owns(entry->d_name) && !is_ours(layout, entry->d_name) &&
            unlinkat(dirfd(folder), entry->d_name, 0))
            return error_errno(err, "cannot remove %s of an earlier export from %s", entry->d_name, path);
    }
    return 0;
}

int folder_finish(const char *path, const struct layout *layout, const struct files_export *what,
                  struct muster_error *err)
{
    scope_buffer index = {0};
    if (layout->file_count > 1 && (layout_index(layout, &index, err) ||
                                   write_in_folder(path, "model.safetensors.index.json", &index, err)))
        return -1;
    if (what->architecture && write_config(path, what, err))
        return -1;
    if (what->folder && copy_tokenizers(what->folder, path, err))
        return -1;
    return remove_old(path, layout, err);
}

int folder_finish_adapters(const char *path, const struct model *model, const struct files_export *what,
                           struct muster_error *err)
{
    scope_buffer text = {0};
    if (adapter_json_format(what->architecture, model, what->lora, what->folder, &text, err) < 0)
        return -1;
    return write_in_folder(path, "adapter_config.json", &text, err);
}
