/* doctor.c - runs the checks; verdict, table, JSON. */
#include "runtime/nccl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/nccl/doctor/doctor_internal.h"

void doctor_add(struct examination *e, enum doctor_status status, const char *cure, const char *format, ...)
{
    struct doctor_report *report = e->report;
    if (report->count == e->capacity) {
        int capacity = e->capacity ? 2 * e->capacity : 32;
        struct doctor_row *rows = mem_realloc(report->rows, (size_t)capacity, sizeof *rows);
        if (!rows) {
            e->failed = true;
            return;
        }
        report->rows = rows;
        e->capacity = capacity;
    }
    struct doctor_row *row = &report->rows[report->count++];
    memset(row, 0, sizeof *row);
    (void)snprintf(row->name, sizeof row->name, "%s", e->name);
    row->status = status;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(row->found, sizeof row->found, format, arguments);
    va_end(arguments);
    (void)snprintf(row->cure, sizeof row->cure, "%s", cure);
}

static void run_checks(struct examination *e, const struct doctor_check *checks)
{
    for (; checks->name; checks++) {
        e->name = checks->name;
        checks->run(e);
    }
}

int doctor_examine(const struct description *description, struct doctor_report *report,
                   struct muster_error *err)
{
    struct examination e = {.machine = description, .report = report};
    run_checks(&e, doctor_gpu_checks);
    run_checks(&e, doctor_host_checks);
    if (!e.failed)
        return 0;
    doctor_report_free(report);
    return error_set(err, MUSTER_E_NOMEM, "no memory for the report");
}

void doctor_report_free(struct doctor_report *report)
{
    if (!report)
        return;
    mem_free(report->rows);
    *report = (struct doctor_report){0};
}

enum doctor_status doctor_verdict(const struct doctor_report *report)
{
    enum doctor_status worst = DOCTOR_FINE;
    for (int i = 0; i < report->count; i++)
        if (report->rows[i].status > worst && report->rows[i].status != DOCTOR_SKIPPED)
            worst = report->rows[i].status;
    return worst;
}

int doctor_exit_code(enum doctor_status verdict)
{
    return verdict == DOCTOR_UNFIT ? 3 : verdict == DOCTOR_WARNING ? 1 : 0;
}

const char *doctor_status_name(enum doctor_status status)
{
    static const char *const names[] = {"ok", "skipped", "warning", "unfit"};
    return status <= DOCTOR_UNFIT ? names[status] : "?";
}

/* --- printing --- */

/* Appends text in a column that starts at indent, broken at blanks. */
static void wrap(const char *text, int indent, int columns, struct buffer *out)
{
    size_t room = columns > indent + 20 ? (size_t)(columns - indent) : 20;
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = room;
        buffer_printf(out, "%.*s\n%*s", (int)cut, text, indent, "");
        text += cut + (text[cut] == ' ');
    }
    buffer_printf(out, "%s\n", text);
}

static void print_row(const struct doctor_row *row, int columns, struct buffer *out)
{
    enum { INDENT = 29 };
    buffer_printf(out, "%-9s%-19s ", doctor_status_name(row->status), row->name);
    wrap(row->found, INDENT, columns, out);
    if (!*row->cure)
        return;
    buffer_printf(out, "%*s-> ", INDENT, "");
    wrap(row->cure, INDENT + 3, columns, out);
}

int doctor_print(const struct doctor_report *report, int columns, struct buffer *out)
{
    static const enum doctor_status order[] = {DOCTOR_UNFIT, DOCTOR_WARNING, DOCTOR_FINE, DOCTOR_SKIPPED};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int i = 0; i < report->count; i++)
            if (report->rows[i].status == order[k])
                print_row(&report->rows[i], columns, out);
    return buffer_printf(out, "verdict: %s\n", doctor_status_name(doctor_verdict(report)));
}

static void field(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "\"%s\": ", name);
    buffer_json_string(out, value);
}

int doctor_json(const struct description *description, const struct doctor_report *report, struct buffer *out)
{
    buffer_text(out, "{");
    field(out, "host", description->host);
    buffer_text(out, ", ");
    field(out, "verdict", doctor_status_name(doctor_verdict(report)));
    buffer_text(out, ", \"rows\": [");
    for (int i = 0; i < report->count; i++) {
        const struct doctor_row *row = &report->rows[i];
        buffer_text(out, i ? ",\n  {" : "\n  {");
        field(out, "name", row->name);
        buffer_text(out, ", ");
        field(out, "status", doctor_status_name(row->status));
        buffer_text(out, ", ");
        field(out, "found", row->found);
        buffer_text(out, ", ");
        field(out, "cure", row->cure);
        buffer_text(out, "}");
    }
    return buffer_text(out, "\n]}\n");
}

int doctor_summary(const struct doctor_report *report, struct buffer *out)
{
    enum doctor_status verdict = doctor_verdict(report);
    int shown = 0;
    if (verdict == DOCTOR_FINE)
        return buffer_text(out, "this node is fit");
    buffer_text(out, verdict == DOCTOR_UNFIT ? "this node is unfit: " : "this node has warnings: ");
    for (int i = 0; i < report->count; i++)
        if (report->rows[i].status == verdict)
            buffer_printf(out, "%s%s (%s)", shown++ ? "; " : "", report->rows[i].name, report->rows[i].found);
    return out->failed ? -1 : 0;
}
