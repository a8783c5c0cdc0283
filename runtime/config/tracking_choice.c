/* tracking_choice.c - see tracking_choice.h. */
#include "runtime/config/tracking_choice.h"

#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static bool was_wished(const char *text)
{
    return text && *text;
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcasecmp(text, *words))
            return true;
    return false;
}

static const char *const off_words[] = {"", "off", "disabled", "false", "none", "no", NULL};
static const char *const offline_words[] = {"offline", "dryrun", "true", NULL};
static const char *const online_words[] = {"online", "run", "shared", NULL};

/* ---- MLflow's URIs ---- */

/* The path of a URI of a store; NULL: the URI is no folder. Bytes of a URI may be given by their numbers. */
static char *path_of_uri(const char *uri)
{
    const char *path = uri;
    if (!strncmp(uri, "file://localhost/", 17))
        path = uri + 16;
    else if (!strncmp(uri, "file://", 7))
        path = uri + 7;
    else if (!strncmp(uri, "file:", 5))
        path = uri + 5;
    else if (strstr(uri, "://") || !strcmp(uri, "databricks") || !strcmp(uri, "databricks-uc") ||
             !strncmp(uri, "sqlite:", 7))
        return NULL;
    if (path != uri && !strncmp(uri, "file://", 7) && *path != '/')
        return NULL; /* a host */
    char *out = mem_strdup(path), *to = out;
    for (const char *from = out; from && *from; to++) {
        static const char digits[] = "0123456789abcdef";
        const char *high = *from == '%' && path != uri && from[1] ? strchr(digits, from[1] | 0x20) : NULL;
        const char *low = high && from[2] ? strchr(digits, from[2] | 0x20) : NULL;
        *to = low ? (char)((high - digits) << 4 | (low - digits)) : *from;
        from += low ? 3 : 1;
    }
    if (out)
        *to = '\0';
    return out;
}

static int refuse_uri(const char *what, const char *uri, struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_INVALID,
        "%s is %s: muster-train sends nothing, it writes MLflow's file store. Give a folder or a file: "
        "URI, and bring the run to a server or database with `mlflow migrate-filestore`",
        what, uri);
}

int tracking_check(const struct tracking_wishes *w, struct muster_error *err)
{
    if (was_wished(w->wandb) && is_one_of(w->wandb, online_words))
        return error_set(
            err, MUSTER_E_INVALID,
            "logging.wandb is %s: muster-train sends nothing. Set it to offline, and upload the run with "
            "`wandb sync`, also while it runs",
            w->wandb);
    if (was_wished(w->wandb) && strcasecmp(w->wandb, "auto") != 0 && !is_one_of(w->wandb, off_words) &&
        !is_one_of(w->wandb, offline_words))
        return error_set(err, MUSTER_E_INVALID, "logging.wandb is %s, but must be auto, offline or off",
                         w->wandb);
    if (!was_wished(w->mlflow) || is_one_of(w->mlflow, off_words) || !strcasecmp(w->mlflow, "auto"))
        return 0;
    scope_free char *path = path_of_uri(w->mlflow);
    return path && *path ? 0 : refuse_uri("logging.mlflow", w->mlflow, err);
}

/* ---- the choice ---- */

static const char *first_of(const char *setting, tracking_variable variable, const char *name)
{
    const char *text = was_wished(setting) ? setting : variable(name);
    return was_wished(text) ? text : NULL;
}

static bool wants_wandb(const struct tracking_wishes *w, tracking_variable variable, struct buffer *notes)
{
    const char *disabled = variable("WANDB_DISABLED"), *mode = variable("WANDB_MODE");
    bool off = false;
    const bool asked = was_wished(w->wandb) && strcasecmp(w->wandb, "auto") != 0
                           ? is_one_of(w->wandb, offline_words)
                           : was_wished(w->project);
    if (!asked || (was_wished(disabled) && text_bool(disabled, &off) && off) ||
        (was_wished(mode) && is_one_of(mode, off_words)))
        return false;
    if (was_wished(mode) && !is_one_of(mode, offline_words))
        buffer_printf(
            notes,
            "WANDB_MODE is %s: muster-train sends nothing, it writes an offline run; upload it with `wandb "
            "sync`, also while it runs\n",
            mode);
    return true;
}

static char *folder_in(const char *log_folder, const char *name)
{
    return was_wished(log_folder) ? mem_printf("%s/%s", log_folder, name) : mem_strdup(name);
}

static int choose_mlflow(const struct tracking_wishes *w, tracking_variable variable,
                         struct tracking_choice *choice, struct buffer *notes, struct muster_error *err)
{
    if (!was_wished(w->mlflow) || is_one_of(w->mlflow, off_words))
        return 0;
    const bool is_auto = !strcasecmp(w->mlflow, "auto");
    const char *uri = is_auto ? variable("MLFLOW_TRACKING_URI") : w->mlflow;
    choice->mlflow_store = was_wished(uri) ? path_of_uri(uri) : NULL;
    if (is_auto && was_wished(uri) && !choice->mlflow_store) {
        struct muster_error why = {0};
        (void)refuse_uri("MLFLOW_TRACKING_URI", uri, &why); /* here it is a note */
        buffer_printf(notes, "%s\n", why.text);
    }
    if (!choice->mlflow_store)
        choice->mlflow_store = folder_in(w->log_folder, "mlruns");
    choice->experiment = first_of(w->experiment, variable, "MLFLOW_EXPERIMENT_NAME");
    return choice->mlflow_store ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

int tracking_choose(const struct tracking_wishes *w, tracking_variable variable,
                    struct tracking_choice *choice, struct buffer *notes, struct muster_error *err)
{
    *choice = (struct tracking_choice){0};
    const bool wandb = wants_wandb(w, variable, notes);
    choice->run_name = was_wished(w->run_name) ? w->run_name
                       : wandb                 ? first_of(NULL, variable, "WANDB_NAME")
                                               : NULL;
    if (wandb) {
        const char *folder = variable("WANDB_DIR");
        choice->wandb_folder = mem_strdup(was_wished(folder)          ? folder
                                          : was_wished(w->log_folder) ? w->log_folder
                                                                      : ".");
        if (!choice->wandb_folder)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        choice->project = first_of(w->project, variable, "WANDB_PROJECT");
        choice->entity = first_of(w->entity, variable, "WANDB_ENTITY");
        choice->group = first_of(w->group, variable, "WANDB_RUN_GROUP");
        choice->id = first_of(NULL, variable, "WANDB_RUN_ID");
        if (choice->id && (strlen(choice->id) > TRACKING_ID_MAX || strpbrk(choice->id, "/\\#?%:' \t\n") ||
                           *choice->id == '.'))
            return error_set(err, MUSTER_E_INVALID,
                             "WANDB_RUN_ID '%s' is no id of a run: at most %d letters, digits, - and _",
                             choice->id, TRACKING_ID_MAX);
        choice->notes = first_of(NULL, variable, "WANDB_NOTES");
        choice->job_type = first_of(NULL, variable, "WANDB_JOB_TYPE");
        choice->tags = first_of(NULL, variable, "WANDB_TAGS");
    }
    return choose_mlflow(w, variable, choice, notes, err);
}

void tracking_choice_free(struct tracking_choice *choice)
{
    mem_free(choice->wandb_folder);
    mem_free(choice->mlflow_store);
    *choice = (struct tracking_choice){0};
}
