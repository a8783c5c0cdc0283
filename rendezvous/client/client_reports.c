/* client_reports.c - reports not acknowledged yet: kept until the server acknowledges them, so that a
 * broken connection loses nothing. */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/client/client_internal.h"

struct pending_report {
    struct pending_report *next;
    struct world_id id;
    enum membership_report_kind kind;
    uint64_t sequence;
    struct instant made;             /* the failure's age is counted to here */
    struct worker_failure failure[]; /* one, if FAILED */
};

static bool send_report(struct client *client, const struct pending_report *report, struct instant now)
{
    client->message.kind = WIRE_REPORT;
    client->message.id = report->id;
    client->message.report = report->kind;
    client->message.sequence = report->sequence;
    if (report->kind == MEMBERSHIP_REPORT_FAILED) {
        client->message.failure = *report->failure;
        client->message.failure.age_ns +=
            instant_diff_ns(now, report->made); /* it may have waited for a connection */
    }
    return client_send_now(client);
}

int client_report(struct client *client, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct instant now, struct muster_error *err)
{
    bool failed = kind == MEMBERSHIP_REPORT_FAILED;
    struct pending_report *report = mem_calloc(1, sizeof *report + (failed ? sizeof *report->failure : 0));
    if (!report)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a report");
    report->id = id;
    report->kind = kind;
    report->sequence = ++client->sequence;
    report->made = now;
    if (failed && failure)
        *report->failure = *failure;
    *client->last = report;
    client->last = &report->next;
    /* Without a connection it is sent after the next ACCEPT. */
    if (client->joined)
        (void)send_report(client, report, now);
    if (kind == MEMBERSHIP_REPORT_DONE && world_id_equal(client->held, id))
        client->done = true;
    if (kind == MEMBERSHIP_REPORT_STOPPED && world_id_equal(client->held, id)) {
        client->held = (struct world_id){0};
        client->done = false;
        client->join_limit = instant_add(now, client->options.join_timeout_ns);
        return client_give_withheld(client, now, err);
    }
    return 0;
}

void client_send_reports(struct client *client, struct instant now)
{
    /* A report that could not be sent is kept, and sent after the next ACCEPT. */
    for (const struct pending_report *report = client->first; report; report = report->next)
        if (!send_report(client, report, now))
            break;
}

void client_forget_reports(struct client *client, uint64_t arrived)
{
    while (client->first && client->first->sequence <= arrived) {
        struct pending_report *report = client->first;
        client->first = report->next;
        if (!client->first)
            client->last = &client->first;
        mem_free(report);
    }
}

bool client_has_news(const struct client *client)
{
    return client->first != NULL;
}
