/* accelerate_config.h - the configuration file of Hugging Face accelerate (default_config.yaml, as
 * `accelerate config` writes it, or the same in JSON), as settings of muster run and as the variables that
 * `accelerate launch` gives its workers (pure).
 *
 * Every key of the file has an effect of five: a setting, variables, without effect here (listed in
 * `aside`), without effect in accelerate as well (a line of `warnings`: an unknown key of a section, the
 * first of a key given twice), or an error that names the file, the line and the alternative. */
#ifndef MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_CONFIG_H
#define MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct run_config; /* launcher/config/config.h */

enum { ACCELERATE_SETTINGS_LIMIT = 12, ACCELERATE_VARIABLES_LIMIT = 96 };

struct accelerate_setting {
    const char *flag; /* flag of muster run, without dashes: "master-addr" */
    char *value;
    int line;
};

struct accelerate_variable {
    const char *name;
    char *value;
    int line;  /* 0: a default of accelerate's own, which the file does not name */
    bool path; /* the value is appended to the variable's own, after a colon */
};

struct accelerate_config {
    struct accelerate_setting settings[ACCELERATE_SETTINGS_LIMIT];
    int setting_count;
    struct accelerate_variable variables[ACCELERATE_VARIABLES_LIMIT];
    int variable_count;
    int64_t processes; /* number on all machines together; 0: the file does not give it */
    int processes_line;
    struct buffer aside;    /* "tpu_name (TPUs only), ..." */
    struct buffer warnings; /* lines */
};

/* name is the file's in errors. directory: the working directory, which DeepSpeed's workers get in
 * PYTHONPATH. Errors are MUSTER_E_INVALID, MUSTER_E_UNSUPPORTED, MUSTER_E_LIMIT or MUSTER_E_NOMEM. out needs
 * no initialisation and is zeroed on failure. */
int accelerate_read(const char *name, const char *text, size_t length, const char *directory,
                    struct accelerate_config *out, struct muster_error *err);
/* The setting of that flag; NULL: the file has none. */
const struct accelerate_setting *accelerate_setting(const struct accelerate_config *config, const char *flag);
void accelerate_free(struct accelerate_config *config);

/* --- applying it ---
 *
 * Keys become settings of muster run where neither a flag nor a variable has set them, and variables for the
 * workers. */

/* Between config_parse and config_resolve. get reads an environment variable; a variable that is set stays as
 * it is. */
int accelerate_apply(struct run_config *config, const struct accelerate_config *file,
                     const char *(*get)(void *context, const char *name), void *context,
                     struct muster_error *err);
/* The same with the file that --accelerate-config names; without one it does nothing. */
int accelerate_load(struct run_config *config, const char *(*get)(void *context, const char *name),
                    void *context, struct muster_error *err);

#endif
