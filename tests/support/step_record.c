/* step_record.c - see step_record.h. */
#include "tests/support/step_record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { PATH_BYTES = 4096 };

static int number_of(const char *name, int64_t fallback, int64_t *value, struct muster_error *err)
{
    const char *text = getenv(name);
    *value = fallback;
    if (!text && fallback < 0)
        return error_set(err, MUSTER_E_INVALID, "%s is not set: start this under a launcher", name);
    if (text && (!text_int64(text, value) || *value < 0 || *value > INT32_MAX))
        return error_set(err, MUSTER_E_INVALID, "%s='%s' is not a number from 0", name, text);
    return 0;
}

static int open_file(struct step_record *record, struct muster_error *err)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/record.XXXXXX", record->folder) >= PATH_BYTES)
        return error_set(err, MUSTER_E_LIMIT, "STEP_FOLDER is too long");
    record->fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    return record->fd < 0 ? error_errno(err, "cannot make %s", path) : 0;
}

int step_record_open(struct step_record *record, struct muster_error *err)
{
    int64_t rank, size;
    record->folder = getenv("STEP_FOLDER");
    if (!record->folder)
        return error_set(err, MUSTER_E_INVALID, "STEP_FOLDER is not set");
    if (number_of("RANK", -1, &rank, err) || number_of("WORLD_SIZE", -1, &size, err) ||
        number_of("MUSTER_ROUND", 0, &record->round, err) ||
        number_of("TORCHELASTIC_RESTART_COUNT", 0, &record->restarts, err) ||
        number_of("STEP_MS", 20, &record->step_ms, err))
        return -1;
    if (size < 1 || size > STEP_RANK_LIMIT || rank >= size)
        return error_set(err, MUSTER_E_INVALID, "RANK=%" PRId64 " of WORLD_SIZE=%" PRId64 " (up to %d)", rank,
                         size, STEP_RANK_LIMIT);
    record->rank = (int)rank;
    record->size = (int)size;
    return open_file(record, err);
}

struct tcpstore_client *step_record_store(struct muster_error *err)
{
    const char *master = getenv("MASTER_ADDR");
    int64_t port;
    if (!master) {
        (void)error_set(err, MUSTER_E_INVALID, "MASTER_ADDR is not set: start this under a launcher");
        return NULL;
    }
    if (number_of("MASTER_PORT", -1, &port, err))
        return NULL;
    struct tcpstore_client_options options = {.host = master, .port = (uint16_t)port};
    return tcpstore_client_connect(&options, err);
}

int step_record_agree(struct step_record *record, struct tcpstore_client *store, struct muster_error *err)
{
    static const char key[] = "step-record/world";
    scope_buffer text = {0};
    if (record->rank == 0) {
        if (getrandom(&record->world, sizeof record->world, 0) != sizeof record->world)
            return error_errno(err, "getrandom");
        return tcpstore_client_set(store, key, &record->world, sizeof record->world, err);
    }
    if (tcpstore_client_get(store, key, &text, STEP_STORE_TIMEOUT, err))
        return -1;
    if (text.length != sizeof record->world)
        return error_set(err, MUSTER_E_PROTOCOL, "the world's number has %zu bytes", text.length);
    memcpy(&record->world, text.data, sizeof record->world);
    return 0;
}

static void add_line(const struct step_record *record, const char *event, struct instant when,
                     const char *more)
{
    char line[512];
    int length = snprintf(line, sizeof line, "%s %" PRId64 " %s\n", event, when.ns, more);
    struct muster_error err = {0};
    if (io_write_all(record->fd, line, (size_t)length, "the record", &err))
        fprintf(stderr, "step_record: %s\n", err.text);
}

void step_record_begin(const struct step_record *record)
{
    char text[480], host[256] = "?";
    (void)gethostname(host, sizeof host - 1); /* "?" says that there is none */
    (void)snprintf(text, sizeof text,
                   "world=%016" PRIx64 " rank=%d size=%d round=%" PRId64 " restarts=%" PRId64 " host=%s",
                   record->world, record->rank, record->size, record->round, record->restarts, host);
    add_line(record, "begin", clock_now(NULL), text);
}

void step_record_count(const struct step_record *record, const char *event, int64_t number,
                       struct instant when)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    add_line(record, event, when, text);
}

void step_record_mixed(const struct step_record *record)
{
    add_line(record, "mixed", clock_now(NULL), "");
}

bool step_record_told(const struct step_record *record, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", record->folder, name);
    return length < PATH_BYTES && access(path, F_OK) == 0;
}
