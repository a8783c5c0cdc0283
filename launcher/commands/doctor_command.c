/* doctor_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/commands/flag_command.h"
#include "launcher/host/describe_host.h"
#include "launcher/host/machine.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"
#include "runtime/nccl/describe/topology.h"
#include "runtime/nccl/doctor/doctor.h"
#include "runtime/nccl/files/description_json.h"

enum { DESCRIPTION_FILE_LIMIT = 16 << 20 };
enum output { OUTPUT_TEXT, OUTPUT_JSON };

struct options {
    int64_t gpus, nnodes, workers;
    bool describe, topology, help;
    int output;
    char *from, *master, *log_dir;
    double nvml_timeout_s;
};

#define AT(member) KNOB_OFFSET(options, member)

static const char *const outputs[] = {"text", "json", NULL};
static const char shown[] = "Output", job[] = "The job that the machine has to be fit for";
static const struct knob rows[] = {
    {.name = "output",
     .letter = 'o',
     .type = KNOB_CHOICE,
     .offset = AT(output),
     .initial = "text",
     .choices = outputs,
     .section = shown,
     .help = "format of the rows"},
    {.name = "describe",
     .type = KNOB_BOOL,
     .offset = AT(describe),
     .section = shown,
     .help = "print the machine as JSON instead: for bug reports, and as input of --from"},
    {.name = "topology",
     .type = KNOB_BOOL,
     .offset = AT(topology),
     .section = shown,
     .help = "print GPUs and RDMA ports as a matrix of NCCL's distances instead"},
    {.name = "from",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(from),
     .section = shown,
     .help = "read the machine from a file printed by --describe, and nothing of this one"},
    {.name = "nvml-timeout",
     .env = "MUSTER_NVML_TIMEOUT",
     .type = KNOB_DOUBLE,
     .offset = AT(nvml_timeout_s),
     .initial = "5",
     .min = 0.1,
     .max = 600,
     .unit = "s",
     .section = shown,
     .help = "time limit for the NVIDIA driver; a driver that hangs makes the machine unfit"},
    KNOB_HELP_ROW(AT(help), shown),
    {.name = "gpus",
     .type = KNOB_INT,
     .offset = AT(gpus),
     .initial = "-1",
     .min = -1,
     .max = 1024,
     .section = job,
     .help = "GPUs (or MIG instances) that must be there; -1: no number required"},
    {.name = "nproc-per-node",
     .type = KNOB_INT,
     .offset = AT(workers),
     .max = 4096,
     .section = job,
     .help = "workers on this node, for shared memory and cores; 0: one for each GPU"},
    {.name = "nnodes",
     .type = KNOB_INT,
     .offset = AT(nnodes),
     .initial = "1",
     .min = 1,
     .max = 100000,
     .section = job,
     .help = "nodes of the job; with more than one the route to the master is checked"},
    {.name = "master-addr",
     .env = "MASTER_ADDR",
     .type = KNOB_TEXT,
     .offset = AT(master),
     .section = job,
     .help = "name or address of the node that the others connect to"},
    {.name = "log-dir",
     .env = "PET_LOG_DIR",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(log_dir),
     .section = job,
     .help = "folder whose disk is checked; TMPDIR's unless set"},
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static int read_file(const struct options *options, struct description *description, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(options->from, DESCRIPTION_FILE_LIMIT, &text, err) < 0)
        return -1;
    if (description_read(options->from, text.data ? text.data : "", text.length, description, err) < 0)
        return -1;
    if (options->gpus >= 0)
        description->gpus_wanted = options->gpus;
    if (options->workers > 0)
        description->local_workers = (int)options->workers;
    return 0;
}

static int read_machine(const struct options *options, struct description *description,
                        struct muster_error *err)
{
    struct nvml_probe __attribute__((cleanup(nvml_probe_free))) nvml = {0};
    struct describe_request request = {.master = options->master,
                                       .log_dir = options->log_dir,
                                       .nnodes = (int)options->nnodes,
                                       .local_workers = (int)options->workers,
                                       .gpus_wanted = options->gpus,
                                       .nvml = &nvml,
                                       .nvml_patience_ns = (int64_t)(options->nvml_timeout_s * NS_PER_S),
                                       .environment = environ};
    return describe_host(&request, description, err);
}

static int examine(const struct options *options, const struct description *description, struct buffer *out,
                   struct muster_error *err)
{
    struct doctor_report report = {0};
    if (doctor_examine(description, &report, err) < 0)
        return EXIT_CODE_FAILURE;
    if (options->output == OUTPUT_JSON)
        (void)doctor_json(description, &report, out); /* out remembers a failure */
    else
        (void)doctor_print(&report, KNOB_HELP_COLUMNS, out);
    int code = doctor_exit_code(doctor_verdict(&report));
    doctor_report_free(&report);
    return code;
}

static int doctor_show(const struct options *options, const struct description *description,
                       struct buffer *out, struct muster_error *err)
{
    if (options->describe)
        (void)description_write(description, out); /* out remembers a failure */
    else if (options->topology)
        (void)topology_print(description, out);
    else
        return examine(options, description, out, err);
    return EXIT_CODE_OK;
}

const struct command_page doctor_page = {
    .name = "muster doctor",
    .brief = "checks whether a machine is fit for a job",
    .description =
        "Checks whether this machine is fit for a job and prints a remedy for each fault. It "
        "changes\nnothing and starts nothing; the NVIDIA driver is queried in a process of its own.",
    .exit_codes = "0 fit; 1 fit with warnings; 3 unfit; 2 bad usage",
    .table = &table};

/* Flags that need the real machine. */
static int check_file(const uint8_t *sources, struct muster_error *err)
{
    static const char *const live[] = {"nnodes", "master-addr", "log-dir", "nvml-timeout"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        const struct knob *knob = knob_find(&table, live[i], strlen(live[i]), false, NULL);
        if (knob && sources[knob - rows] == KNOB_FROM_FLAG)
            return error_set(err, MUSTER_E_INVALID,
                             "--%s reads this machine, and --from reads a machine from a file; leave out one",
                             live[i]);
    }
    return 0;
}

static int check(const struct options *options, const uint8_t *sources, struct muster_error *err)
{
    if (options->describe && options->topology)
        return error_set(err, MUSTER_E_INVALID, "--describe and --topology are two outputs; choose one");
    if (options->topology && options->output == OUTPUT_JSON)
        return error_set(
            err, MUSTER_E_INVALID,
            "--topology is a matrix for display; --describe has the same as JSON (gpu_links, nic_links)");
    return options->from ? check_file(sources, err) : 0;
}

static int doctor_run(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                      struct muster_error *err)
{
    const struct options *options = command->options;
    struct description description;
    (void)complaint; /* it has one error at most */
    if (check(options, command->sources, err) < 0 ||
        (options->from ? read_file : read_machine)(options, &description, err) < 0)
        return err->code == MUSTER_E_NOMEM ? EXIT_CODE_FAILURE : EXIT_CODE_USAGE;
    int code = doctor_show(options, &description, out, err);
    description_free(&description);
    return code;
}

int doctor_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&doctor_page, &options, &options.help, sources, doctor_run};
    return flag_command(&command, argc, argv, out, complaint);
}
