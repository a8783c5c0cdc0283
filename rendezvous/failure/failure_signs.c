/* failure_signs.c - distinguishes a worker's own failure from one caused by a lost peer, by its last
 * output.
 *
 * When a worker dies, its peers' collectives, connections and look-ups in the store fail, and each library
 * reports this in its own words. These words are a sign of a secondary failure unless the same text also
 * shows an error of its own: NCCL, for one, reports an error of its own GPU as an "NCCL error" too. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/failure/failure.h"

/* The peer was lost, or never came. */
static const char *const peer_gone[] = {
    /* NCCL and PyTorch's process group over it */
    "ncclRemoteError",
    "ncclSystemError",
    "ncclInternalError",
    "NCCL error",
    "remote process exited or there was a network error",
    "Watchdog caught collective operation timeout",
    "watchdog thread terminated with exception",
    "watchdog got stuck",
    "ProcessGroupNCCL's watchdog",
    "Some NCCL operations have failed or timed out",
    "NCCL communicator was aborted",
    "taking the entire process down",
    "socketStartConnect: Connect to",
    "socketProgress: Connection closed by remote peer",
    /* PyTorch's exceptions of this kind */
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    /* its store */
    "recvValue failed",
    "sendBytes failed",
    "sendValue failed",
    "failed to recv, got 0 bytes",
    "Stop_waiting response is expected",
    "The client socket has failed to connect",
    "The client socket has timed out",
    "wait timeout after",
    "Socket Timeout",
    /* gloo */
    "gloo/transport",
    "Gloo connectFullMesh failed",
    "Connection closed by peer",
    "for recv operation to complete", /* "Timed out waiting 1800000ms" precedes it */
    "for send operation to complete",
    /* the system's texts for it, as printed by strerror, Python and Go */
    "Connection reset by peer",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "Connection refused",
    "ConnectionAbortedError",
    "Broken pipe",
    "BrokenPipeError",
    "Transport endpoint is not connected",
    "No route to host",
    "ECONNRESET",
    "EPIPE",
    /* libmuster: a wait on a peer that ended or closed its connection, or an error that others print */
    ": it closed the connection",
    "cannot connect to the TCPStore at",
    " has not published its address",
    "connection refused; the rank has ended",
    "listens at its address; the rank has ended",
    "the store is gone, and with it this round",
    "another rank has failed",
    ", see their errors",
    ", see its error",
};

/* An error of its own, whatever communication errors are printed. */
static const char *const at_home[] = {
    "CUDA out of memory",
    "OutOfMemoryError",
    "CUDA error: ",
    "Cuda failure",
    "unhandled cuda error",
    "ncclUnhandledCudaError",
    "ncclInvalidUsage",
    "ncclInvalidArgument",
    "device-side assert",
    "an illegal memory access",
    "uncorrectable ECC error",
    "No space left on device",
    "Cannot allocate memory",
    "MemoryError",
};

static const char *first_of(const char *text, size_t length, const char *const *signs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = memmem(text, length, signs[i], strlen(signs[i]));
        if (at)
            return at;
    }
    return NULL;
}

static const char *sign_of_peer(const char *text, size_t length)
{
    return first_of(text, length, peer_gone, sizeof peer_gone / sizeof *peer_gone);
}

static const char *sign_of_home(const char *text)
{
    return first_of(text, strlen(text), at_home, sizeof at_home / sizeof *at_home);
}

/* libmuster's sentences about another rank: "rank 3 cannot go on: ", "rank 3 (pid 7) exited during " and the
 * like. The reason that follows may be any error, also of that rank's machine. A rank puts its own number
 * where an error of its own has stopped one of its comms. */
static const char *sentence_of_rank(const char *text, size_t length, int own_rank)
{
    static const char *const verbs[] = {
        " cannot go on: ",
        " exited during ",
        " exited between operations of comm ",
        " had left the comm before ",
        " aborted comm ",
        " stopped: ",
        " cannot send a state",
    };
    static const char rank_is[] = "rank ", pid_is[] = " (pid ";
    const char *end = text + length;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), rank_is, sizeof rank_is - 1)); at++) {
        char *after;
        const char *digits = at + sizeof rank_is - 1;
        const long rank = strtol(digits, &after, 10);
        if (*digits < '0' || *digits > '9' || rank == own_rank)
            continue;
        if (!strncmp(after, pid_is, sizeof pid_is - 1))
            after += strcspn(after, ")\n") + 1;
        for (size_t i = 0; after < end && i < sizeof verbs / sizeof *verbs; i++)
            if (!strncmp(after, verbs[i], strlen(verbs[i])))
                return at;
    }
    return NULL;
}

/* PyTorch puts "[rank3]: " before each line of a traceback. */
static const char *behind_rank(const char *line)
{
    if (strncmp(line, "[rank", 5) != 0)
        return line;
    const char *at = line + 5 + strspn(line + 5, "0123456789");
    return strncmp(at, "]: ", 3) ? line : at + 3;
}

/* "ValueError: no" or "KeyboardInterrupt": a name with dots, then a colon or the end of the line. */
static bool names_exception(const char *line)
{
    size_t length = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return length > 3 && (line[0] | 32) >= 'a' && (line[0] | 32) <= 'z' &&
           (line[length] == '\n' || line[length] == '\0' || !strncmp(line + length, ": ", 2));
}

/* The last line of the last Python traceback in text: not indented, after an indented one. The head of the
 * traceback may be missing: only last lines are kept. NULL: there is none. */
static const char *last_exception(const char *text)
{
    const char *found = NULL;
    bool indented = false;
    for (const char *line = text; *line;) {
        const char *words = behind_rank(line);
        if (indented && names_exception(words))
            found = line;
        indented = words[0] == ' ' && words[1] == ' ';
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return found;
}

/* The part of text in which an exception's message may be: without the output of C++ when the process then
 * aborts. */
static size_t words_of_exception(const char *exception)
{
    const char *end = strstr(exception, "terminate called");
    return end ? (size_t)(end - exception) : strlen(exception);
}

bool failure_says_peer_gone(const char *text, int own_rank)
{
    const char *exception = last_exception(text), *words = exception ? exception : text;
    const size_t length = exception ? words_of_exception(exception) : strlen(text);
    if (sentence_of_rank(words, length, own_rank))
        return true;
    if (sign_of_home(text))
        return false;
    return sign_of_peer(words, length) != NULL;
}

bool failure_shows_trouble(const struct worker_failure *failure)
{
    static const char traceback[] = "Traceback (most recent call last)", trainer[] = "muster-train: ";
    if (*failure->message)
        return !failure_says_peer_gone(failure->message, failure->rank);
    if (failure_says_peer_gone(failure->tail, failure->rank))
        return false;
    const char *own = failure->signal ? NULL : strstr(failure->tail, trainer);
    return strstr(failure->tail, traceback) || (own && strstr(own, "error: "));
}

/* Last words of C and C++ before abort(). */
static const char *const aborts[] = {
    "  what():  ",
    "terminate called",
    ": Assertion `",
    "stack smashing detected",
    "double free or corruption",
    "free(): ",
    "malloc(): ",
    "malloc_consolidate(): ",
    "realloc(): ",
    "munmap_chunk(): ",
    "corrupted size vs. prev_size",
};

/* What Python's faulthandler writes about a signal that ends the process has the place in its first frame:
 * "Fatal Python error: Aborted", an empty line, "Current thread 0x...", frames, extension modules. The place
 * explains less than C's or C++'s own words. NULL: there is no such dump. */
static const char *line_of_dump(const char *text)
{
    const char *dump = strstr(text, "Fatal Python error: ");
    if (!dump)
        return NULL;
    const char *words = first_of(text, (size_t)(dump - text), aborts, sizeof aborts / sizeof *aborts);
    const char *frame = strstr(dump, "\n  File \"");
    return words ? words : frame ? frame + 3 : dump;
}

bool failure_shows_place(const char *text)
{
    return line_of_dump(text) != NULL;
}

/* The last line that is not empty. */
static const char *last_line(const char *text)
{
    size_t end = strlen(text);
    while (end && strchr("\n ", text[end - 1]))
        end--;
    return text + (end ? end - 1 : 0);
}

const char *failure_informative_line(const char *text, size_t *length)
{
    const char *at = sign_of_home(text);
    if (!at)
        at = last_exception(text);
    if (!at)
        at = sign_of_peer(text, strlen(text));
    if (!at)
        at = line_of_dump(text);
    if (!at)
        at = last_line(text);
    while (at > text && at[-1] != '\n')
        at--;
    at = behind_rank(at);
    at += strspn(at, " ");
    *length = strcspn(at, "\n");
    return at;
}
