/* rendezvous_failure_test.c - which failure is the first cause, in any order in which they become
 * known, its class, and its text. */
#include "rendezvous/failure/failure.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/exit_code.h"
#include "proto/xid.h"
#include "tests/support/cmocka_all.h"

static struct worker_failure with_tail(int exit_code, int signal, const char *tail)
{
    struct worker_failure f = {
        .pid = 812, .exit_code = signal ? -1 : exit_code, .signal = signal, .host = "b"};
    strncpy(f.tail, tail, sizeof f.tail - 1);
    return f;
}

static void the_class_of_every_kind(void **state)
{
    (void)state;
    static const char watchdog[] =
        "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL";
    const struct {
        struct worker_failure failure;
        enum failure_class class_;
    } rows[] = {
        {{.signal = SIGSEGV, .exit_code = -1}, FAILURE_SIGNAL},
        {{.signal = SIGKILL, .exit_code = -1}, FAILURE_SIGNAL},
        {{.signal = SIGTERM, .exit_code = -1}, FAILURE_SIGNAL},
        {{.exit_code = 1, .out_of_memory = true}, FAILURE_SIGNAL},
        {{.exit_code = 1, .xid = 79, .tail = "NCCL error: remote"}, FAILURE_SIGNAL},
        {{.exit_code = 1, .xid = 79, .xid_elsewhere = true}, FAILURE_EXIT},
        {{.signal = SIGABRT, .exit_code = -1, .hung = true, .tail = "NCCL error"}, FAILURE_SIGNAL},
        {{.lost_node = true, .exit_code = 138}, FAILURE_LOST_NODE},
        {{.unkillable = true, .signal = SIGSEGV}, FAILURE_LOST_NODE},
        {{.exit_code = 3}, FAILURE_EXIT},
        {{.not_started = true, .exit_code = 127, .message = "connect: Connection refused"}, FAILURE_EXIT},
        {with_tail(1, 0, "ValueError: no"), FAILURE_EXIT},
        /* told to stop: a crash is the weakest cause but for followers; a KILL is none of ours */
        {{.signal = SIGSEGV, .exit_code = -1, .after_stop = true}, FAILURE_AFTER_STOP},
        {{.signal = SIGKILL, .exit_code = -1, .after_stop = true}, FAILURE_SIGNAL},
        {{.signal = SIGABRT, .exit_code = -1, .after_stop = true, .tail = "gloo/transport"}, FAILURE_CASCADE},
        /* a watchdog's abort is a signal, and no cause; another abort, or another signal, is one */
        {with_tail(0, SIGABRT, watchdog), FAILURE_CASCADE},
        {with_tail(0, SIGABRT, "assertion failed"), FAILURE_SIGNAL},
        {with_tail(0, SIGKILL, watchdog), FAILURE_SIGNAL},
        {with_tail(0, SIGSEGV, watchdog), FAILURE_SIGNAL},
        {with_tail(0, SIGPIPE, ""), FAILURE_CASCADE},
        /* the words of each library */
        {with_tail(1, 0, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError"),
         FAILURE_CASCADE},
        {with_tail(1, 0, "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"),
         FAILURE_CASCADE},
        {with_tail(1, 0, "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"),
         FAILURE_CASCADE},
        {with_tail(1, 0, "DistNetworkError: recvValue failed on SocketImpl(fd=3)"), FAILURE_CASCADE},
        {with_tail(1, 0, "DistStoreError: wait timeout after 300000ms, keys: /a"), FAILURE_CASCADE},
        {with_tail(1, 0, "ConnectionResetError: [Errno 104] Connection reset by peer"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 1 (pid 7) exited during all_gather"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 1 exited during all_gather #3"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 12 (pid 7) had left the comm before send #2"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 2 (pid 7) exited between operations of comm x"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 2 aborted comm x"), FAILURE_CASCADE},
        {with_tail(1, 0, "rank 2 stopped: the disk is full: No space left on device"), FAILURE_CASCADE},
        {with_tail(1, 0, "the batch of 1 other ranks was refused, see their errors"), FAILURE_CASCADE},
        /* its own number */
        {with_tail(1, 0, "rank 0 stopped: the disk is full"), FAILURE_EXIT},
        {with_tail(1, 0, "rank 0 stopped: rank 3 stopped: the disk is full"), FAILURE_CASCADE},
        /* in the exception or its traceback, where stderr is not known */
        {{.exit_code = 1, .message = "DistBackendError: NCCL error"}, FAILURE_CASCADE},
        /* the reason of another rank, also where the text is that of an error of its own */
        {with_tail(138, 0, "muster-train: rank 0: error: rank 13 cannot go on: mmap: Cannot allocate memory"),
         FAILURE_CASCADE},
        {{.exit_code = 2, .no_restart = true, .message = "rank 1 cannot go on: no file x"}, FAILURE_CASCADE},
        {with_tail(1, 0, "  File \"t.py\", line 1\nmuster.Error: rank 1 cannot go on: CUDA error: no"),
         FAILURE_CASCADE},
        {with_tail(1, 0, "rank 1 cannot go on: x\n  File \"t.py\", line 1\nValueError: no"), FAILURE_EXIT},
        {with_tail(1, 0, "muster-train: rank 0: error: rank 3 stopped: CUDA error: an illegal memory access"),
         FAILURE_CASCADE},
        {with_tail(1, 0, "rank stopped: x"), FAILURE_EXIT},
        {with_tail(1, 0, "rank cannot go on: x"), FAILURE_EXIT},
        {with_tail(1, 0, "1 cannot go on: x"), FAILURE_EXIT},
        {with_tail(1, 0, "crank1 cannot go on: x"), FAILURE_EXIT},
        {with_tail(1, 0, "rank -1 aborted comm x"), FAILURE_EXIT},
        {with_tail(1, 0, "rank 2 (pid 7"), FAILURE_EXIT},
        {with_tail(1, 0, "rank 2"), FAILURE_EXIT},
        /* a traceback ended it; later messages of the failing process did not */
        {with_tail(
             0, SIGABRT,
             "[rank1]:   File \"t.py\", line 11\n[rank1]: ValueError: bad batch\nterminate called after "
             "throwing an instance of 'gloo::IoException'\n  what():  Connection closed by peer"),
         FAILURE_SIGNAL},
        {with_tail(0, SIGABRT,
                   "  File \"t.py\", line 1\nRuntimeError: Connection closed by peer\nterminate called"),
         FAILURE_CASCADE},
        {with_tail(
             1, 0,
             "  File \"x\"\nKeyError: 1\n\nDuring handling of the above exception, another occurred:\n\n"
             "  File \"y\"\ntorch.distributed.DistStoreError: wait timeout after 3ms"),
         FAILURE_CASCADE},
        {{.exit_code = -1,
          .signal = SIGABRT,
          .message = "ValueError: no",
          .tail = "Connection closed by peer"},
         FAILURE_SIGNAL},
        /* trouble of its own, though communication is what said so */
        {with_tail(1, 0, "NCCL error in: x.cpp:1, unhandled cuda error (run with NCCL_DEBUG=INFO)"),
         FAILURE_EXIT},
        {with_tail(1, 0, "torch.OutOfMemoryError: CUDA out of memory.\nterminate: NCCL error"), FAILURE_EXIT},
        {with_tail(0, SIGABRT,
                   "CUDA error: device-side assert triggered\nNCCL watchdog thread terminated with "
                   "exception"),
         FAILURE_SIGNAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (failure_class_of(&rows[i].failure) != rows[i].class_)
            fail_msg("row %zu is \"%s\"", i, failure_class_name(failure_class_of(&rows[i].failure)));
}

enum { KINDS = 8, ROUNDS = 4000 };

static struct worker_failure any_failure(unsigned *random)
{
    static const struct worker_failure kinds[KINDS] = {
        {.signal = SIGSEGV, .exit_code = -1},
        {.exit_code = 1, .out_of_memory = true},
        {.lost_node = true, .exit_code = 138, .local_rank = -1},
        {.exit_code = 7},
        {.exit_code = 1, .tail = "Connection closed by peer"},
        {.signal = SIGABRT, .exit_code = -1, .after_stop = true},
        {.signal = SIGKILL, .exit_code = -1, .after_stop = true},
        {.exit_code = 1, .xid = 48},
    };
    struct worker_failure f = kinds[(unsigned)rand_r(random) % KINDS];
    f.rank = rand_r(random) % 4;
    f.pid = rand_r(random) % 3;
    return f;
}

/* Few instants, ranks and pids, so that equals are common. */
static void the_order_of_arrival_does_not_matter(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    unsigned random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        static struct worker_failure list[COUNT];
        struct failure_key keys[COUNT], first, again;
        for (int i = 0; i < COUNT; i++) {
            list[i] = any_failure(&random);
            keys[i] = failure_key_of(&list[i], (struct instant){rand_r(&random) % 3});
        }
        first = keys[0];
        for (int i = 1; i < COUNT; i++)
            if (failure_key_compare(&keys[i], &first) < 0)
                first = keys[i];
        for (int i = COUNT - 1; i > 0; i--) { /* another order of arrival */
            int other = rand_r(&random) % (i + 1);
            struct failure_key kept = keys[i];
            keys[i] = keys[other];
            keys[other] = kept;
        }
        again = keys[0];
        for (int i = 1; i < COUNT; i++)
            if (failure_key_compare(&keys[i], &again) < 0)
                again = keys[i];
        assert_int_equal(failure_key_compare(&first, &again), 0);
        for (int i = 0; i < COUNT; i++) { /* antisymmetric, transitive by the class above all */
            int j = rand_r(&random) % COUNT;
            assert_int_equal(failure_key_compare(&keys[i], &keys[j]),
                             -failure_key_compare(&keys[j], &keys[i]));
            if (keys[i].class_ < keys[j].class_)
                assert_true(failure_key_compare(&keys[i], &keys[j]) < 0);
        }
    }
}

static void exit_codes(void **state)
{
    (void)state;
    const struct {
        struct worker_failure failure;
        int code;
    } rows[] = {
        {{.exit_code = 85}, 85},
        {{.exit_code = 255}, 255},
        {{.exit_code = 0}, EXIT_CODE_FAILURE},
        {{.exit_code = 300}, EXIT_CODE_FAILURE},
        {{.exit_code = -1, .signal = SIGSEGV}, 139},
        {{.exit_code = -1, .signal = SIGKILL, .out_of_memory = true}, 137},
        {{.exit_code = -1, .signal = 64}, 192},
        {{.lost_node = true}, EXIT_CODE_NODE},
        {{.unkillable = true, .signal = SIGKILL}, EXIT_CODE_NODE},
        {{.not_started = true, .exit_code = 126}, 126},
        {with_tail(1, 0, "DistNetworkError: failed to recv, got 0 bytes"), EXIT_CODE_NODE},
        {with_tail(1, 0, "rank 1: error: cannot connect to the TCPStore at a:1: 9 attempts"), EXIT_CODE_NODE},
        {with_tail(7, 0, "DistNetworkError: failed to recv, got 0 bytes"), 7}, /* the script's own choice */
        {with_tail(1, 0, "CUDA out of memory\nNCCL error"), EXIT_CODE_FAILURE},
        {with_tail(0, SIGABRT, "gloo/transport"), 134},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(failure_exit_code(&rows[i].failure), rows[i].code);
}

static void described(const struct worker_failure *failure, const char *expected)
{
    char text[480];
    failure_describe(failure, text, sizeof text);
    assert_string_equal(text, expected);
}

static void one_sentence_each(void **state)
{
    (void)state;
    struct worker_failure f = with_tail(0, SIGSEGV, "last words");
    f.rank = 3;
    f.core_dumped = true;
    described(&f, "rank 3 (pid 812 on b) was killed by signal 11 (SIGSEGV), core dumped");
    f = with_tail(0, SIGSEGV,
                  "x\nFatal Python error: Segmentation fault\n\nThread 0x1:\n  File \"a\", line 3");
    described(&f, "rank 0 (pid 812 on b) was killed by signal 11 (SIGSEGV): File \"a\", line 3");
    f = with_tail(3, 0, "Traceback (most recent call last):\n  File \"x\"\nValueError: no\n");
    described(&f, "rank 0 (pid 812 on b) exited with code 3: ValueError: no");
    strcpy(f.message, "KeyError: 'a'\nmore");
    described(&f, "rank 0 (pid 812 on b) exited with code 3: KeyError: 'a'");
    f = with_tail(0, SIGKILL, "");
    f.out_of_memory = true;
    f.memory_limit = INT64_C(512) << 20;
    f.memory_peak = INT64_C(512) << 20;
    described(
        &f, "rank 0 (pid 812 on b) was killed by signal 9 (SIGKILL), out of memory: the container's limit is "
            "512.0 MB, its peak was 512.0 MB");
    f.memory_host = true;
    described(&f,
              "rank 0 (pid 812 on b) was killed by signal 9 (SIGKILL), the machine was out of memory, though "
              "the container's limit is 512.0 MB, its peak was 512.0 MB");
    f = with_tail(1, 0, "");
    f.xid = 79;
    strcpy(f.pci, "0000:3b:00");
    described(&f,
              "rank 0 (pid 812 on b) exited with code 1, NVIDIA Xid 79 at GPU 0000:3b:00: the GPU has fallen "
              "off the bus");
    f.xid_elsewhere = true;
    described(
        &f, "rank 0 (pid 812 on b) exited with code 1, NVIDIA Xid 79 at GPU 0000:3b:00 of its node: the GPU "
            "has fallen off the bus");
    f = with_tail(0, SIGABRT, "");
    f.after_stop = true;
    described(&f, "rank 0 (pid 812 on b) was killed by signal 6 (SIGABRT), after it was sent SIGTERM");
    f = (struct worker_failure){.not_started = true, .rank = 2, .host = "b", .message = "no such program"};
    described(&f, "rank 2 on b could not be started: no such program");
    f = (struct worker_failure){.lost_node = true, .group_rank = 4, .host = "b"};
    described(&f, "node rank 4 (b) is lost");
    strcpy(f.message, "its agent was restarted");
    described(&f, "node rank 4 (b) is lost, its agent was restarted");
    f = (struct worker_failure){
        .hung = true, .step = 7, .signal = SIGABRT, .host = "b", .message = "no beat for 300 s"};
    described(&f, "rank 0 (on b) hung after step 7: no beat for 300 s");
    f = (struct worker_failure){.unkillable = true, .host = "b", .pid = 9};
    described(&f, "rank 0 (pid 9 on b) survived SIGKILL, so its node is unfit");
}

static void no_text_is_too_long(void **state)
{
    (void)state;
    static struct worker_failure f;
    f = (struct worker_failure){.exit_code = 1, .xid = 13, .out_of_memory = true, .memory_limit = 1};
    memset(f.host, 'h', sizeof f.host - 1);
    memset(f.tail, 't', sizeof f.tail - 1);
    memset(f.message, 'm', sizeof f.message - 1);
    for (size_t size = 1; size < 700; size++) {
        char *text = malloc(size); /* its own block, so that a sanitizer sees a write beyond it */
        assert_non_null(text);
        failure_describe(&f, text, size);
        assert_true(strlen(text) < size);
        failure_excerpt(&f, text, size);
        assert_true(strlen(text) < size);
        failure_memory_text(&f, text, size);
        assert_true(strlen(text) < size);
        free(text);
    }
}

/* What Python's faulthandler writes after the output `before`. */
#define DUMP(before, signal)                                                                                 \
    before "\nFatal Python error: " signal                                                                   \
           "\n\nCurrent thread 0x00007fe545cff040 (most recent call first):\n"                               \
           "  File \"/a/t.py\", line 11 in read\n  File \"/a/t.py\", line 20 in <module>\n\n"                \
           "Extension modules: torch._C (total: 1)\n"

static void the_telling_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } rows[] = {
        {"", ""},
        {"\n\n", ""},
        {"one", "one"},
        {"one\ntwo\n", "two"},
        {"[rank2]:   File x\n[rank2]: torch.X: no\nwarning: tidying up", "torch.X: no"},
        {"  File x\nnot an exception at all\nlast", "last"},
        {"  File x\nKeyboardInterrupt", "KeyboardInterrupt"},
        {"a\nConnection reset by peer\nin thread 3", "Connection reset by peer"},
        {"x\nCUDA out of memory. Tried\nNCCL error\nend", "CUDA out of memory. Tried"},
        {DUMP("rank 1: an odd file", "Segmentation fault"), "File \"/a/t.py\", line 11 in read"},
        {DUMP("free(): invalid pointer", "Aborted"), "free(): invalid pointer"},
        {DUMP("terminate called after throwing an instance of 'E'\n  what():  no", "Aborted"), "what():  no"},
        {DUMP("t: t.c:3: main: Assertion `x' failed.", "Aborted"), "t: t.c:3: main: Assertion `x' failed."},
        {"Fatal Python error: Aborted\n\nThread 0x7f:\n  <no Python frame>\n", "Fatal Python error: Aborted"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length;
        const char *line = failure_informative_line(rows[i].text, &length);
        assert_int_equal(length, strlen(rows[i].line));
        assert_memory_equal(line, rows[i].line, length);
    }
}

/* A worker that fails takes time to end, and its peers notice first: told to stop, it is the cause all the
 * same. */
static void who_was_failing_already(void **state)
{
    (void)state;
    struct worker_failure f =
        with_tail(0, SIGTERM, "Traceback (most recent call last):\n  File x\nValueError: no");
    f.after_stop = true;
    assert_true(failure_shows_trouble(&f));
    assert_true(failure_is_cut_short(&f));
    assert_int_equal(failure_class_of(&f), FAILURE_AFTER_STOP);
    assert_int_equal(failure_exit_code(&f), EXIT_CODE_FAILURE);
    described(&f, "rank 0 (pid 812 on b) was already failing when it was stopped: ValueError: no");
    f = with_tail(3, 0, "");
    f.after_stop = true;
    assert_false(failure_shows_trouble(&f));
    assert_false(failure_is_cut_short(&f));
    strcpy(f.message, "ValueError: no");
    assert_true(failure_shows_trouble(&f));
    assert_int_equal(failure_exit_code(&f), 3);
    strcpy(f.message, "DistBackendError: NCCL error");
    assert_false(failure_shows_trouble(&f));
    f = with_tail(0, SIGTERM, "Traceback (most recent call last):\nBrokenPipeError: [Errno 32] Broken pipe");
    assert_false(failure_shows_trouble(&f));
    f = with_tail(138, 0, "muster-train: rank 1: error: no memory");
    assert_true(failure_shows_trouble(&f));
    f = with_tail(138, 0, "muster-train: rank 0: error: rank 1 cannot go on: no memory");
    assert_false(failure_shows_trouble(&f));
    f = with_tail(0, SIGTERM, "muster-train: error: written while it was stopped");
    assert_false(failure_shows_trouble(&f));
    f = with_tail(143, 0, "muster-train: stopped after step 7");
    assert_false(failure_shows_trouble(&f));
    f = with_tail(0, SIGTERM, "step 7");
    assert_false(failure_shows_trouble(&f));
    assert_false(failure_is_cut_short(&f)); /* nobody had told it: the signal is the cause */
}

static void a_brief_tells_the_same(void **state)
{
    (void)state;
    struct worker_failure f = with_tail(1, 0, "a\nBroken pipe\nb"), back;
    f.rank = 5;
    (void)snprintf(f.host, sizeof f.host, "node-7");
    f.xid = 13;
    f.xid_elsewhere = true;
    struct failure_brief brief = failure_brief_of(&f);
    assert_int_equal(brief.xid, 0);
    assert_int_equal(brief.class_, FAILURE_CASCADE);
    assert_string_equal(brief.excerpt, "Broken pipe");
    assert_string_equal(brief.host, "node-7");
    brief.after_ns = 3;
    failure_from_brief(&brief, 10, &back);
    assert_int_equal(failure_class_of(&back), FAILURE_CASCADE);
    assert_int_equal(back.age_ns, 7);
    assert_int_equal(back.rank, 5);
    f = with_tail(0, SIGSEGV, "");
    f.after_stop = true;
    brief = failure_brief_of(&f);
    failure_from_brief(&brief, 0, &back);
    assert_int_equal(failure_class_of(&back), FAILURE_AFTER_STOP);
}

static void xid_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int number, pid;
        const char *pci;
    } rows[] = {
        {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79,
         0, "0000:3b:00"},
        {"4,1234,99,-;NVRM: Xid (PCI:0000:3B:00): 31, pid=4242, name=python3, Ch 00000008\n", 31, 4242,
         "0000:3b:00"},
        {"NVRM: Xid (PCI:0000:3b:00): 43, pid='777', Ch 10", 43, 777, "0000:3b:00"},
        {"NVRM: Xid (0000:03:00): 13, Graphics Exception", 13, 0, "0000:03:00"},
        {"NVRM: Xid (PCI:00000001:3b:00.0): 48", 48, 0, "0001:3b:00"},
        {"NVRM: Xid (PCI:0000:3b:00): 43, pid=", 43, 0, "0000:3b:00"},
        {"NVRM: Xid (PCI:0000:3b:00): ", 0, 0, ""},
        {"NVRM: Xid (PCI:0000:3b:00 79", 0, 0, ""},
        {"NVRM: Xid (PCI:zz:3b:00): 79", 0, 0, ""},
        {"NVRM: Xid (PCI:0000:3b:00): 99999999999999999999", 0, 0, ""},
        {"NVRM: GPU at PCI:0000:3b:00", 0, 0, ""},
        {"\nNVRM: Xid (PCI:0000:3b:00): 79", 0, 0, ""}, /* another line */
        {"", 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct xid_report report = {0};
        if (xid_parse(rows[i].line, &report) != (rows[i].number != 0))
            fail_msg("row %zu", i);
        if (!rows[i].number)
            continue;
        assert_int_equal(report.number, rows[i].number);
        assert_int_equal(report.pid, rows[i].pid);
        assert_string_equal(report.pci, rows[i].pci);
    }
    char pci[FAILURE_PCI_LIMIT];
    assert_true(xid_pci_normalize("00000000:3B:00.0", pci));
    assert_string_equal(pci, "0000:3b:00");
    assert_false(xid_pci_normalize("3b:00.0", pci));
    assert_false(xid_pci_normalize("0000:3b:00x", pci));
}

static void xid_meanings(void **state)
{
    (void)state;
    assert_int_equal(xid_meaning(79)->kind, XID_MACHINE);
    assert_int_equal(xid_meaning(31)->kind, XID_PROGRAM);
    assert_int_equal(xid_meaning(45)->kind, XID_FOLLOWER);
    assert_non_null(strstr(xid_meaning(4711)->what, "not in"));
}

static void whose_xid_it_is(void **state)
{
    (void)state;
    static const struct xid_report seen[] = {
        {45, "0000:3b:00", 10}, {31, "0000:3b:00", 10}, {79, "0000:5e:00", 0}, {13, "0000:3b:00", 0}};
    const struct xid_report *elsewhere;
    const struct {
        int pid;
        const char *pci;
        int own, elsewhere; /* numbers; 0: none */
    } rows[] = {
        {10, "", 31, 0}, {11, "0000:5e:00", 79, 0}, {0, "0000:3b:00", 31, 0}, {0, "0000:aa:00", 0, 0},
        {0, "", 0, 79},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct xid_report *own = xid_of_worker(seen, 4, rows[i].pid, rows[i].pci, &elsewhere);
        assert_int_equal(own ? own->number : 0, rows[i].own);
        assert_int_equal(elsewhere ? elsewhere->number : 0, rows[i].elsewhere);
    }
    assert_null(xid_of_worker(seen, 1, 10, "", &elsewhere)); /* lines after an error are no cause */
    assert_null(elsewhere);
}

static void signal_names(void **state)
{
    (void)state;
    char scratch[16];
    assert_string_equal(failure_signal_name(SIGSEGV, scratch, sizeof scratch), "SIGSEGV");
    assert_string_equal(failure_signal_name(99, scratch, sizeof scratch), "SIG99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_class_of_every_kind),
        cmocka_unit_test(the_order_of_arrival_does_not_matter),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(one_sentence_each),
        cmocka_unit_test(no_text_is_too_long),
        cmocka_unit_test(the_telling_line),
        cmocka_unit_test(a_brief_tells_the_same),
        cmocka_unit_test(xid_lines),
        cmocka_unit_test(who_was_failing_already),
        cmocka_unit_test(xid_meanings),
        cmocka_unit_test(whose_xid_it_is),
        cmocka_unit_test(signal_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
