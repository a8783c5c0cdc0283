/* run_pictures.c - a run on pictures: the set by its settings, and what is printed of it. See run.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/pictures/pictures.h"
#include "trainer/run/run.h"

bool run_has_pictures(const struct run *run)
{
    return train_config_reads_pictures(&run->config);
}

/* "0.4914, 0.4822, 0.4465", or one number for all channels. */
static int read_numbers(const char *key, const char *text, bool above_zero, int channels, float *out,
                        struct muster_error *err)
{
    int count = 0;
    const char *at = text;
    while (count < channels) {
        char *end;
        const float value = strtof(at, &end);
        if (end == at || !isfinite(value) || (above_zero && !(value > 0)))
            return error_set(err, MUSTER_E_INVALID,
                             "%s is '%s', which is no list of numbers%s: 0.5, 0.5, 0.5", key, text,
                             above_zero ? " above 0" : "");
        out[count++] = value;
        at = end + strspn(end, " ");
        if (!*at)
            break;
        at += *at == ',';
    }
    if (*at || (count != 1 && count != channels))
        return error_set(err, MUSTER_E_INVALID,
                         "%s is '%s'; it must have one number, or one for each of "
                         "model.input_channels %d",
                         key, text, channels);
    for (int i = count; i < channels; i++)
        out[i] = out[0];
    return 0;
}

/* dataset_info.json and dataset_info.pt. */
static int write_info(const struct run *run, struct muster_error *err)
{
    const char *folder = run->config.data_info;
    scope_buffer json = {0}, archive = {0};
    if (run->rank || !folder || !*folder)
        return 0;
    scope_free char *path = mem_printf("%s/dataset_info.json", folder),
                    *pt = mem_printf("%s/dataset_info.pt", folder);
    if (!path || !pt || pictures_info_json(run->pictures, &json))
        return error_set(err, MUSTER_E_NOMEM, "no memory for data.info_dir");
    if (pictures_info_archive(run->pictures, &archive, err) < 0 ||
        io_make_directories(folder, 0777, err) < 0 ||
        io_write_file_atomic(path, json.data, json.length, 0666, err) < 0 ||
        io_write_file_atomic(pt, archive.data, archive.length, 0666, err) < 0)
        return error_wrap(err, "data.info_dir");
    return 0;
}

int run_pictures_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    struct pictures_options o = {
        .path = c->path,
        .validation_path = c->validation_path,
        .kind = (enum picture_kind)c->dataset,
        .validation_share = c->validation_share,
        .seed = (uint64_t)c->seed,
        .classes = train_config_classes(c),
        .augment = {.shape = {(int)c->input_channels, (int)c->input_size, (int)c->input_size},
                    .padding = (int)c->crop_padding,
                    .flips = c->flip}};
    if (read_numbers("data.mean", c->mean, false, o.augment.shape.channels, o.augment.mean, err) < 0 ||
        read_numbers("data.std", c->deviation, true, o.augment.shape.channels, o.augment.deviation, err) < 0)
        return -1;
    run->pictures = pictures_open(&o, err);
    if (!run->pictures)
        return -1;
    return write_info(run, err) < 0 ? -1 : run_count_steps(run, pictures_samples(run->pictures), err);
}

void run_pictures_show(const struct run *run)
{
    const struct train_config *c = &run->config;
    const struct pictures *held = pictures_validation(run->pictures);
    printf("data: %s, %lld files, %lld pictures to train on, %lld held out, %d classes\n", c->path,
           (long long)pictures_files(run->pictures), (long long)pictures_samples(run->pictures),
           held ? (long long)pictures_samples(held) : 0LL, pictures_classes(run->pictures));
    if (c->epochs > 0)
        printf("epochs: %g of %lld pictures are %lld steps\n", c->epochs,
               (long long)pictures_samples(run->pictures), (long long)c->steps);
}
