/* board_source.c - see board_source.h. */
#include "launcher/commands/board_source.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/board/board_json.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"

enum { HOST = 256, PORT = 8, TOKEN = 1024, CHUNK = 16384, PATIENCE_S = 5 };

/* --- an agent's page --- */

/* "http://host:port", a path after it does not count; "host:port" will do. */
static int split_url(const char *url, char host[HOST], char port[PORT], struct muster_error *err)
{
    const char *at = !strncmp(url, "http://", 7) ? url + 7 : url;
    const size_t length = strcspn(at, "/");
    const bool six = *at == '[';
    const char *close = six ? memchr(at, ']', length) : NULL;
    const char *colon = six ? (close ? close + 1 : NULL) : memchr(at, ':', length);
    if (strncmp(url, "https:", 6) == 0 || !colon || *colon != ':')
        return error_set(err, MUSTER_E_INVALID, "--url=%s: not of the form http://HOST:PORT", url);
    const char *name = six ? at + 1 : at;
    const size_t name_length = (size_t)(six ? close - name : colon - name);
    const size_t port_length = length - (size_t)(colon + 1 - at);
    if (!name_length || name_length >= HOST || !port_length || port_length >= PORT)
        return error_set(err, MUSTER_E_INVALID, "--url=%s: not of the form http://HOST:PORT", url);
    memcpy(host, name, name_length);
    host[name_length] = '\0';
    memcpy(port, colon + 1, port_length);
    port[port_length] = '\0';
    return 0;
}

static int dial_page(const char *host, const char *port, struct muster_error *err)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return error_set(err, MUSTER_E_NOT_FOUND, "%s: %s", host, gai_strerror(failed));
    int fd = -1;
    for (const struct addrinfo *one = found; one && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
            connect(fd, one->ai_addr, one->ai_addrlen) < 0) {
            (void)error_errno(err, "%s:%s", host, port);
            (void)close(fd); /* not connected */
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static int read_token(const char *path, struct buffer *out, struct muster_error *err)
{
    scope_buffer text = {0};
    if (!path || !*path)
        return 0;
    if (io_read_file(path, TOKEN, &text, err) < 0)
        return error_wrap(err, "--token-file");
    buffer_text(out, "Authorization: Bearer ");
    buffer_append(out, text.data, strcspn(text.data ? text.data : "", " \t\r\n"));
    buffer_text(out, "\r\n");
    return 0;
}

static int receive_all(int fd, const char *url, struct buffer *answer, struct muster_error *err)
{
    answer->limit = BOARD_JSON_LIMIT + CHUNK;
    for (;;) {
        char *room = buffer_reserve(answer, CHUNK);
        if (!room)
            return error_set(err, MUSTER_E_LIMIT, "%s: the answer is longer than %d bytes", url,
                             BOARD_JSON_LIMIT);
        const ssize_t got = recv(fd, room, CHUNK, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "%s", url);
        if (got == 0)
            return 0;
        answer->length += (size_t)got;
        answer->data[answer->length] = '\0';
    }
}

static struct board *from_url(const struct board_source *source, struct muster_error *err)
{
    char host[HOST], port[PORT];
    int status = 0;
    scope_buffer request = {0}, answer = {0};
    if (split_url(source->url, host, port, err) < 0)
        return NULL;
    const bool six = strchr(host, ':') != NULL;
    buffer_printf(&request, "GET /board.json HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n",
                  six ? "[" : "", host, six ? "]" : "", port);
    if (read_token(source->token_file, &request, err) < 0)
        return NULL;
    buffer_text(&request, "\r\n");
    scope_close int fd = dial_page(host, port, err);
    if (fd < 0 || io_write_all(fd, request.data, request.length, source->url, err) < 0 ||
        receive_all(fd, source->url, &answer, err) < 0)
        return NULL;
    const char *body = answer.data ? strstr(answer.data, "\r\n\r\n") : NULL;
    if (!body || sscanf(answer.data, "HTTP/1.1 %d", &status) != 1) {
        (void)error_set(err, MUSTER_E_PROTOCOL, "%s: not an answer of an agent", source->url);
        return NULL;
    }
    body += 4;
    const size_t length = answer.length - (size_t)(body - answer.data);
    if (status == 200)
        return board_read(source->url, body, length, clock_wall_ns() / NS_PER_MS, err);
    (void)error_set(err, MUSTER_E_REFUSED, "%s: status %d: %.*s", source->url, status,
                    (int)strcspn(body, "\n"), body);
    return NULL;
}

/* --- a file --- */

/* The only file of the folder. */
static char *only_file(const struct board_source *source, struct buffer *complaint, struct muster_error *err)
{
    char *found = NULL;
    int count = 0;
    DIR *folder = opendir(source->state_dir);
    if (!folder) {
        (void)error_errno(err, "--state-dir=%s", source->state_dir);
        return NULL;
    }
    for (struct dirent *one; (one = readdir(folder));) {
        const size_t length = strlen(one->d_name), suffix = strlen(BOARD_FILE_SUFFIX);
        if (!(length > suffix && !strcmp(one->d_name + length - suffix, BOARD_FILE_SUFFIX)))
            continue;
        buffer_printf(complaint, "%s: a job of %s: %.*s\n", source->command, source->state_dir,
                      (int)(strlen(one->d_name) - strlen(BOARD_FILE_SUFFIX)), one->d_name);
        mem_free(found);
        found = count++ ? NULL : mem_printf("%s/%s", source->state_dir, one->d_name);
    }
    (void)closedir(folder); /* read only */
    if (count == 1) {
        buffer_clear(complaint);
        return found;
    }
    mem_free(found);
    if (count)
        (void)error_set(err, MUSTER_E_INVALID, "%d jobs are in %s; choose one with --job", count,
                        source->state_dir);
    else
        (void)error_set(err, MUSTER_E_NOT_FOUND,
                        "%s holds no job's board; muster run --state-dir keeps one where this node serves",
                        source->state_dir);
    return NULL;
}

static struct board *from_file(const struct board_source *source, struct buffer *complaint,
                               struct muster_error *err)
{
    scope_free char *path = source->job && *source->job ? board_file_path(source->state_dir, source->job)
                                                        : only_file(source, complaint, err);
    if (!path)
        return NULL;
    return board_file_read(path, err);
}

/* --- an agent of this machine --- */

static struct board *from_agent(const struct board_source *source, int *code, struct buffer *complaint,
                                struct muster_error *err)
{
    const struct agent_choice choice = {source->command, source->pid, source->job};
    struct agents_found agents = {0};
    struct board *board = NULL;
    scope_buffer answer = {0};
    if (agents_find(&choice, &agents, complaint, err) == 0 && agents.count == 1 &&
        status_ask(agents.found[0].name, STATUS_ASK_BOARD, AGENT_PATIENCE_NS, &answer, NULL, err) == 0) {
        board = board_read("the agent's board", answer.data, answer.length, clock_wall_ns() / NS_PER_MS, err);
    } else if (agents.count > 1) {
        agents_table(&agents, complaint);
        agents_ask_for_one(&choice, &agents, complaint);
        *code = EXIT_CODE_USAGE;
    }
    agents_free(&agents);
    return board;
}

struct board *board_source_read(const struct board_source *source, int *code, struct buffer *complaint,
                                struct muster_error *err)
{
    *code = EXIT_CODE_FAILURE;
    struct board *board = source->url && *source->url ? from_url(source, err)
                          : source->state_dir && *source->state_dir
                              ? from_file(source, complaint, err)
                              : from_agent(source, code, complaint, err);
    if (!board && err->code == MUSTER_E_INVALID)
        *code = EXIT_CODE_USAGE;
    return board;
}
