/* kept.c - what lives as long as the trainer: writers with their threads, files, headers and texts, which
 * each checkpoint takes and gives back.
 */
#include "proto/base/guard.h"
#include "proto/base/text_list.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/save.h"

int checkpoint_kept_make(struct checkpoint_kept *kept, struct muster_error *err)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++) {
        if (kept->writers[i])
            continue;
        scope_free struct checkpoint_writer *w = mem_calloc(1, sizeof *w);
        if (!w || !(w->thread = mem_calloc(1, sizeof *w->thread)))
            return error_set(err, MUSTER_E_NOMEM, "no memory to write checkpoints");
        kept->writers[i] = take_pointer(&w);
    }
    return 0;
}

void checkpoint_kept_free(struct checkpoint_kept *kept)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        rank_file_destroy(take_pointer(&kept->files[i]));
    for (int i = 0; i < SAVES_AT_ONCE; i++) {
        struct checkpoint_writer *w = take_pointer(&kept->writers[i]);
        if (!w)
            continue;
        save_thread_stop(w->thread);
        mem_free(w->thread);
        mem_free(w);
    }
    if (kept->spare_in)
        folder_drop_spare(kept->spare_in);
    mem_free(take_pointer(&kept->spare_in));
    for (int i = 0; kept->headers && i < HEADERS_KEPT; i++)
        rank_header_clear(&kept->headers[i]);
    mem_free(take_pointer(&kept->headers));
    text_list_free_items((char **)take_pointer(&kept->settings));
    mem_free((void *)take_pointer(&kept->numerics));
}

/* ---- writers and files: whatever no checkpoint uses lies in an array, NULL where there is a place ---- */

struct checkpoint_writer *kept_take_writer(struct checkpoint_kept *kept)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        if (kept->writers[i])
            return take_pointer(&kept->writers[i]);
    return NULL;
}

void kept_put_writer(struct checkpoint_kept *kept, struct checkpoint_writer *w)
{
    int i = 0;
    while (kept->writers[i]) /* `w` was taken from here: there is a place */
        i++;
    kept->writers[i] = w;
}

struct rank_file *kept_take_file(struct checkpoint_kept *kept)
{
    for (int i = 0; kept && i < SAVES_AT_ONCE; i++)
        if (kept->files[i])
            return take_pointer(&kept->files[i]);
    return NULL;
}

void kept_put_file(struct checkpoint_kept *kept, struct rank_file *file)
{
    for (int i = 0; kept && file && i < SAVES_AT_ONCE; i++) {
        if (!kept->files[i]) {
            kept->files[i] = file;
            return;
        }
    }
    rank_file_destroy(file);
}

/* ---- texts ---- */

int copy_texts(manifest_texts texts, manifest_texts *out)
{
    scope_text_list list = {0};
    *out = NULL;
    for (size_t i = 0; texts && texts[i]; i++)
        if (text_list_take(&list, mem_strdup(texts[i])) < 0)
            return -1;
    *out = (manifest_texts)take_pointer(&list.items);
    return 0;
}

static int format_numerics(const struct trainer *trainer, const char **out)
{
    struct fingerprint fingerprint;
    struct buffer numerics = {0};
    trainer_fingerprint(trainer, &fingerprint);
    if (fingerprint_format(&fingerprint, &numerics) < 0) {
        buffer_free(&numerics);
        return -1;
    }
    *out = numerics.data;
    return 0;
}

int kept_texts(struct checkpoint_kept *kept, const struct trainer *trainer, manifest_texts settings,
               struct manifest_run *run)
{
    manifest_texts *all_settings = kept ? &kept->settings : &run->settings;
    const char **numerics = kept ? &kept->numerics : &run->numerics;
    if ((!*all_settings && copy_texts(settings, all_settings) < 0) ||
        (!*numerics && format_numerics(trainer, numerics) < 0))
        return -1;
    run->settings = *all_settings;
    run->numerics = *numerics;
    return 0;
}

void kept_drop_texts(const struct checkpoint_kept *kept, struct manifest_run *run)
{
    if (kept)
        return;
    text_list_free_items((char **)run->settings);
    mem_free((void *)run->numerics);
}
