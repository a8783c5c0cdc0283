/* pre_flight.c - see pre_flight.h. */
#include "launcher/nccl/pre_flight.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/nccl/doctor/doctor.h"

static int say(const struct doctor_report *report, struct run_config *config, const struct log_sink *log,
               struct muster_error *err)
{
    for (int i = 0; i < report->count; i++) {
        const struct doctor_row *row = &report->rows[i];
        if (row->status != DOCTOR_WARNING && row->status != DOCTOR_UNFIT)
            continue;
        log_write(log, row->status == DOCTOR_UNFIT ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING,
                  "pre-flight: %s: %s%s%s", row->name, row->found, *row->cure ? "; " : "", row->cure);
        if (config_warn(config, err, "pre-flight: %s: %s%s%s", row->name, row->found, *row->cure ? "; " : "",
                        row->cure) < 0)
            return -1;
    }
    return 0;
}

int pre_flight_examine(struct run_config *config, const struct log_sink *log, struct nccl_env *tune,
                       struct muster_error *err)
{
    struct doctor_report __attribute__((cleanup(doctor_report_free))) report = {0};
    scope_buffer why = {0};
    if (!config->pre_flight)
        return 0;
    if (doctor_examine(&tune->machine, &report, err) < 0 || say(&report, config, log, err) < 0)
        return -1;
    if (doctor_verdict(&report) != DOCTOR_UNFIT)
        return 0;
    if (doctor_summary(&report, &why) == 0)
        tune->unfit = buffer_take(&why);
    return tune->unfit ? 0
                       : error_set(err, MUSTER_E_NOMEM, "no memory for the result of the pre-flight check");
}
