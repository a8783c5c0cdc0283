/* reader.c - one description, filled part by part. */
#include "runtime/nccl/read/reader.h"

#include "proto/base/error.h"
#include "runtime/nccl/read/reader_internal.h"

int reader_read(const struct reader_options *options, struct description *description,
                struct muster_error *err)
{
    struct reader r = {.options = options, .out = description};
    description_init(description);
    READER_SET(description->host, options->host ? options->host : "");
    READER_SET(description->master, options->master ? options->master : "");
    READER_SET(description->master_address, options->master_address ? options->master_address : "");
    READER_SET(description->log_dir, options->log_dir ? options->log_dir : "");
    description->nnodes = options->nnodes;
    description->local_workers = options->local_workers;
    description->gpus_wanted = options->gpus_wanted;
    reader_host(&r);
    reader_limits(&r);
    reader_interfaces(&r);
    reader_routes(&r);
    reader_rdma(&r);
    reader_driver(&r);
    reader_gpus(&r);
    reader_settings(&r);
    if (!r.failed && reader_distances(options->root, description, err) == 0)
        return 0;
    description_free(description);
    return error_set(err, MUSTER_E_NOMEM, "no memory to describe this machine");
}
