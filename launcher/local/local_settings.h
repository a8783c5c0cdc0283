/* local_settings.h - the settings of `muster local`, one row each. */
#ifndef MUSTER_LAUNCHER_LOCAL_LOCAL_SETTINGS_H
#define MUSTER_LAUNCHER_LOCAL_LOCAL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/local/run/runner.h"
#include "proto/base/knob.h"

enum local_output { LOCAL_OUTPUT_TEXT, LOCAL_OUTPUT_JSON, LOCAL_OUTPUT_MARKDOWN };
enum local_validation { LOCAL_VALIDATE_STRICT, LOCAL_VALIDATE_WARN };

struct local_settings {
    char **files; /* NULL-terminated; NULL: none */
    char **env;   /* NAME=value, checked; the same */
    char *job, *entrypoint;
    int validate; /* enum local_validation */
    bool dry_run;
    int output; /* enum local_output */
    double backoff_scale, grace_s, linger_s;
    bool keep_going, quiet, no_prefix, gpu_shortage;
    char *log_dir, *gpus, *volumes;
    bool help;
};

const struct knob_table *local_settings_table(void);
/* argv after "muster local". settings must be zeroed; local_settings_free on success and on failure. */
int local_settings_parse(int argc, char *const argv[], struct local_settings *settings,
                         struct muster_error *err);
void local_settings_free(struct local_settings *settings);
/* The runner's settings, which borrow their texts. */
struct local_options local_settings_options(const struct local_settings *settings);
extern const char local_settings_description[]; /* what --help prints before the flags */
int local_settings_help(const char *name, int columns, struct buffer *out);
/* FLAGS.md of this folder, appended. */
int local_settings_markdown(struct buffer *out);

#endif
