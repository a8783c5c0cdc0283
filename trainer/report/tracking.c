/* tracking.c - see tracking.h. */
#include "trainer/report/tracking.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { MEMORY_LIMIT = 1 << 16 };

/* What the memory has of the run that goes on; "" where it has nothing. */
static void recall(const struct tracking_options *o, char **wandb, char **mlflow)
{
    scope_buffer text = {0};
    *wandb = *mlflow = NULL;
    if (!o->goes_on || !o->memory_path || io_read_file(o->memory_path, MEMORY_LIMIT, &text, NULL) < 0 ||
        !text.data)
        return; /* new runs, as where there is no memory for this text */
    *wandb = mlflow_read_value(text.data, "wandb");
    *mlflow = mlflow_read_value(text.data, "mlflow");
}

static int remember(const struct tracking *t, const struct tracking_options *o, struct muster_error *err)
{
    scope_buffer text = {0};
    if (!o->memory_path)
        return 0;
    buffer_text(&text, "# The runs of W&B and MLflow in which this training goes on.\n");
    if (t->wandb.name)
        buffer_printf(&text, "wandb: %s\n", t->wandb.name);
    if (t->mlflow.name)
        buffer_printf(&text, "mlflow: %s\n", t->mlflow.name);
    if (text.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the names of the runs");
    scope_free char *folder = mem_strdup(o->memory_path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash && slash != folder) {
        *slash = '\0';
        if (io_make_directories(folder, 0777, err) < 0)
            return -1;
    }
    return io_write_file_atomic(o->memory_path, text.data, text.length, 0666, err);
}

int tracking_open(struct tracking *t, const struct tracking_options *o, struct muster_error *err)
{
    scope_free char *wandb = NULL, *mlflow = NULL;
    t->wandb.fd = -1;
    if (!o->wandb_folder && !o->mlflow_store)
        return 0;
    recall(o, &wandb, &mlflow);
    if (o->wandb_folder && wandb_files_open(&t->wandb, o->wandb_folder, &o->wandb, wandb, o->step, err) < 0)
        return error_wrap(err, "logging.wandb");
    if (o->mlflow_store && mlflow_files_open(&t->mlflow, o->mlflow_store, o->experiment, o->wandb.name,
                                             o->wandb.settings, mlflow, o->step, err) < 0)
        return error_wrap(err, "logging.mlflow");
    return remember(t, o, err);
}

bool tracking_is_open(const struct tracking *t)
{
    return t->wandb.fd >= 0 || t->mlflow.folder;
}

void tracking_files(struct tracking *t, struct writer_file *wandb, struct writer_file *mlflow)
{
    *wandb = (struct writer_file){.fd = -1, .path = t->wandb.path};
    *mlflow = (struct writer_file){.fd = -1, .path = t->mlflow.folder};
    if (t->wandb.fd >= 0) {
        wandb->write = wandb_files_write;
        wandb->context = &t->wandb;
    }
    if (t->mlflow.folder) {
        mlflow->write = mlflow_files_write;
        mlflow->context = &t->mlflow;
    }
}

void tracking_close(struct tracking *t, int exit_code, const struct log_sink *log)
{
    struct muster_error err = {0};
    if (t->mlflow.folder && mlflow_files_end(&t->mlflow, exit_code, &err) < 0)
        log_warning(log, "%s; MLflow shows the run as if it went on", err.text);
    wandb_files_free(&t->wandb);
    mlflow_files_free(&t->mlflow);
}
