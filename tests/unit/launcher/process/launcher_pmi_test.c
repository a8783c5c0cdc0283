/* pmi.h, pmi_line.h, mpi_library.h: requests and replies of MPI processes, the exchanges of two nodes, and
 * clients that break the protocol. */
#include "launcher/pmi/pmi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/pmi/mpi_library.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"

static struct pmi *make(int node, int nodes, int first, int local, int world)
{
    struct muster_error err = {0};
    const struct pmi_place place = {node, nodes, first, local, world, "job"};
    struct pmi *pmi = pmi_create(&place, &err);
    assert_non_null(pmi);
    return pmi;
}

/* Sends text, and compares all replies of the rank so far. */
static void ask(struct pmi *pmi, int rank, const char *text, const char *expected)
{
    struct muster_error err = {0};
    struct buffer *replies = pmi_replies(pmi, rank);
    assert_int_equal(pmi_take(pmi, rank, text, strlen(text), &err), 0);
    assert_int_equal(replies->length, strlen(expected));
    assert_memory_equal(replies->length ? replies->data : "", expected, replies->length);
    buffer_clear(replies);
}

static void expect_reply(struct pmi *pmi, int rank, const char *expected)
{
    ask(pmi, rank, "", expected);
}

/* All nodes' exchange of this number is due; their texts reach all of them. */
static void exchange(struct pmi **nodes, int count, int number)
{
    scope_buffer all = {0};
    struct muster_error err = {0};
    for (int i = count - 1; i >= 0; i--) { /* in any order */
        struct buffer *own;
        assert_int_equal(pmi_due_exchange(nodes[i], &own), number);
        assert_int_equal(buffer_append(&all, own->data, own->length), 0);
        assert_int_equal(pmi_due_exchange(nodes[i], &own), -1); /* once */
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(pmi_take_exchange(nodes[i], all.data, all.length, &err), 0);
}

#define HELLO   "cmd=init pmi_version=1 pmi_subversion=1\n"
#define WELCOME "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"

static void two_nodes_meet(void **state)
{
    (void)state;
    struct pmi *nodes[] = {make(0, 2, 0, 1, 3), make(1, 2, 1, 2, 3)};
    struct buffer *own;
    assert_int_equal(pmi_due_exchange(nodes[0], &own), -1);
    ask(nodes[0], 0, HELLO, "");
    ask(nodes[1], 1, HELLO, "");
    exchange(nodes, 2, 0);
    expect_reply(nodes[0], 0, WELCOME);
    expect_reply(nodes[1], 1, WELCOME);
    ask(nodes[1], 0, HELLO, WELCOME); /* later than the exchange */
    ask(nodes[0], 0, "cmd=get_maxes\n", "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n");
    ask(nodes[0], 0, "cmd=get_appnum\n", "cmd=appnum appnum=0 rc=0\n");
    ask(nodes[0], 0, "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=job rc=0\n");
    ask(nodes[0], 0, "cmd=get_universe_size\n", "cmd=universe_size size=3 rc=0\n");
    ask(nodes[0], 0, "cmd=get kvsname=muster key=PMI_process_mapping\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,1),(1,1,2))\n");
    ask(nodes[1], 0, "cmd=put kvsname=muster key=a value=b=c d\n", "cmd=put_result rc=0 msg=success\n");
    ask(nodes[1], 0, "cmd=get kvsname=muster key=a\n", "cmd=get_result rc=0 msg=success value=b=c d\n");
    ask(nodes[0], 0, "cmd=get kvsname=muster key=a\n",
        "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    ask(nodes[1], 0, "cmd=barrier_in\n", "");
    assert_int_equal(pmi_due_exchange(nodes[1], &own), -1); /* not all ranks are in it */
    ask(nodes[1], 1, "cmd=barrier_in\n", "");
    ask(nodes[0], 0, "cmd=barrier_in\n", "");
    exchange(nodes, 2, 1);
    expect_reply(nodes[1], 0, "cmd=barrier_out rc=0\n");
    expect_reply(nodes[1], 1, "cmd=barrier_out rc=0\n");
    expect_reply(nodes[0], 0, "cmd=barrier_out rc=0\n");
    ask(nodes[0], 0, "cmd=get kvsname=muster key=a\n", "cmd=get_result rc=0 msg=success value=b=c d\n");
    ask(nodes[0], 0, "cmd=finalize\n", "cmd=finalize_ack rc=0\n");
    assert_int_equal(pmi_state_of(nodes[0], 0), PMI_FINALIZED);
    pmi_destroy(nodes[0]);
    pmi_destroy(nodes[1]);
}

static struct pmi *make_running(void)
{
    struct pmi *pmi = make(0, 1, 0, 1, 1);
    ask(pmi, 0, HELLO, "");
    exchange(&pmi, 1, 0);
    expect_reply(pmi, 0, WELCOME);
    return pmi;
}

static void requests_that_are_not_served(void **state)
{
    (void)state;
    struct pmi *pmi = make_running();
    ask(pmi, 0, "mcmd=spawn\nnprocs=1\nexecname=/bin/true\nargcnt=0\nendcmd\n",
        "cmd=spawn_result rc=-1 msg=spawn_is_not_served\n");
    struct pmi_note note = pmi_take_note(pmi);
    assert_int_equal(note.kind, PMI_NOTE_SPAWN);
    ask(pmi, 0, "cmd=publish_name service=s port=p\n",
        "cmd=publish_result rc=-1 info=fail msg=names_are_not_served\n");
    ask(pmi, 0, "cmd=get_ranks2hosts\n", "cmd=get_ranks2hosts_result rc=-1 msg=unknown_request\n");
    ask(pmi, 0, "cmd=abort exitcode=7\n", "");
    note = pmi_take_note(pmi);
    assert_int_equal(note.kind, PMI_NOTE_ABORT);
    assert_int_equal(note.exit_code, 7);
    assert_int_equal(pmi_take_note(pmi).kind, PMI_NOTE_NONE);
    pmi_destroy(pmi);
    pmi = make(0, 1, 0, 1, 1);
    ask(pmi, 0, "cmd=init pmi_version=2 pmi_subversion=0\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    pmi_destroy(pmi);
}

static void limits_of_keys(void **state)
{
    (void)state;
    struct pmi *pmi = make_running();
    static const struct {
        int key, value;
        const char *reply;
    } rows[] = {{63, 1023, "cmd=put_result rc=0 msg=success\n"},
                {64, 1, "cmd=put_result rc=-1 msg=key_is_too_long\n"},
                {1, 1024, "cmd=put_result rc=-1 msg=value_is_too_long\n"},
                {0, 1, "cmd=put_result rc=-1 msg=key_or_value_is_missing\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scope_buffer line = {0};
        assert_int_equal(
            buffer_printf(&line, "cmd=put key=%0*d value=%0*d\n", rows[i].key, 0, rows[i].value, 0), 0);
        if (!rows[i].key) {
            buffer_clear(&line);
            assert_int_equal(buffer_text(&line, "cmd=put key= value=1\n"), 0);
        }
        ask(pmi, 0, line.data, rows[i].reply);
    }
    ask(pmi, 0, "cmd=put key=@0 value=x\n", "cmd=put_result rc=-1 msg=key_begins_with_@\n");
    int kept = 0;
    for (int i = 0; i < 5000; i++) {
        scope_buffer line = {0};
        struct muster_error err = {0};
        assert_int_equal(buffer_printf(&line, "cmd=put key=k%d value=%01000d\n", i, i), 0);
        assert_int_equal(pmi_take(pmi, 0, line.data, line.length, &err), 0);
        kept += strstr(pmi_replies(pmi, 0)->data, "rc=0") != NULL;
        buffer_clear(pmi_replies(pmi, 0));
    }
    assert_in_range(kept, PMI_OWN_LIMIT / 1100, PMI_OWN_LIMIT / 1000);
    pmi_destroy(pmi);
}

/* Each is refused with a reason, and the rank is gone. */
static void broken_clients(void **state)
{
    (void)state;
    scope_buffer endless = {0};
    for (int i = 0; i < 1 << 20; i += 16)
        assert_int_equal(buffer_text(&endless, "aaaaaaaaaaaaaaaa"), 0);
    const char *texts[] = {"\n",        "cmd\n",     "=\n", "key=a\n", "cmd=barrier_in\n", /* before init */
                           HELLO HELLO, endless.data};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct pmi *pmi = make(0, 1, 0, 1, 1);
        struct muster_error err = {0};
        assert_int_equal(pmi_take(pmi, 0, texts[i], strlen(texts[i]), &err), -1);
        assert_string_not_equal(err.text, "");
        assert_int_equal(pmi_state_of(pmi, 0), PMI_GONE);
        assert_int_equal(pmi_take(pmi, 0, HELLO, strlen(HELLO), &err), -1);
        pmi_destroy(pmi);
    }
    struct pmi *pmi = make(0, 1, 0, 1, 1);
    struct muster_error err = {0};
    assert_int_equal(pmi_take(pmi, 0, "cmd=\0\n", 6, &err), -1);
    pmi_destroy(pmi);
}

static void broken_exchanges(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "@0 0 1\n",                 /* a node is missing */
                                        "@0 0 1\n@1 1 2",           /* cut */
                                        "@0 0 1\n@2 1 2\n",         /* no such node */
                                        "@0 0 1\n@1 1 3\n",         /* more ranks than the world */
                                        "@0 0 1\n@1 1 2\n@1 1 1\n", /* twice, different */
                                        "@0 0 1\n@1 -1 2\n",
                                        "@0 0 1\n@1 1 2\nnothing\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct pmi *pmi = make(0, 2, 0, 1, 3);
        struct muster_error err = {0};
        assert_int_equal(pmi_take_exchange(pmi, texts[i], strlen(texts[i]), &err), -1);
        assert_string_not_equal(err.text, "");
        pmi_destroy(pmi);
    }
}

/* A node none of whose ranks is in MPI reports it to the others, which wait in MPI_Init and in a barrier. */
static void missing_ranks_of_a_node(void **state)
{
    (void)state;
    for (int initialised = 0; initialised < 2; initialised++) {
        struct pmi *nodes[] = {make(0, 2, 0, 1, 3), make(1, 2, 1, 2, 3)};
        struct buffer *own;
        scope_buffer all = {0};
        struct muster_error err = {0};
        ask(nodes[0], 0, HELLO, "");
        if (initialised) {
            ask(nodes[1], 0, HELLO, "");
            exchange(nodes, 2, 0);
            ask(nodes[0], 0, "cmd=barrier_in\n", WELCOME);
        }
        pmi_leave(nodes[1], 0);
        pmi_leave(nodes[1], 1);
        assert_false(pmi_reports_missing(nodes[1]));
        assert_int_equal(pmi_report_missing(nodes[1], 1), 0);
        assert_int_equal(pmi_report_missing(nodes[1], 0), 0); /* the first is told */
        assert_true(pmi_reports_missing(nodes[1]));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pmi_due_exchange(nodes[i], &own), initialised);
            assert_int_equal(buffer_append(&all, own->data, own->length), 0);
        }
        assert_int_equal(pmi_take_exchange(nodes[0], all.data, all.length, &err), -1);
        assert_int_equal(err.code, MUSTER_E_PEER);
        assert_string_equal(err.text, "rank 2, for which MPI waits, exited 0 without MPI_Finalize");
        pmi_destroy(nodes[0]);
        pmi_destroy(nodes[1]);
    }
    struct buffer *own;
    struct pmi *alone = make(0, 1, 0, 1, 1);
    pmi_leave(alone, 0);
    assert_int_equal(pmi_report_missing(alone, 0), 0);
    assert_int_equal(pmi_due_exchange(alone, &own), -1);
    pmi_destroy(alone);
}

static void libraries(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum mpi_library library;
    } rows[] = {{"libmpi.so.12", MPI_LIBRARY_PMI1},    {"libmpich.so.12", MPI_LIBRARY_PMI1},
                {"libmpi_abi.so.1", MPI_LIBRARY_PMI1}, {"libmpi.so.40", MPI_LIBRARY_PMIX},
                {"libmpi.so.20", MPI_LIBRARY_PMIX},    {"libmpi_cxx.so.40", MPI_LIBRARY_PMIX},
                {"libc.so.6", MPI_LIBRARY_NONE},       {"", MPI_LIBRARY_NONE}};
    char soname[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mpi_library_of_name(rows[i].name), rows[i].library);
    assert_int_equal(mpi_library_of_file("/proc/self/exe", soname, sizeof soname), MPI_LIBRARY_NONE);
    static const char pal[] =
        "7f-80 r-xp 00 08:01 7 /opt/a b/libopen-pal.so.40.30.2\n7f-80 r-xp 00 08:01 7 /x\n",
                      mpich[] =
                          "7f-80 r-xp 00 08:01 7 /opt/libmpi.so\n7f-80 r-xp 00 08:01 7 /x/libopen-pal.s";
    assert_int_equal(mpi_library_of_maps(pal, sizeof pal - 1, soname, sizeof soname), MPI_LIBRARY_PMIX);
    assert_string_equal(soname, "libopen-pal.so.40.30.2");
    assert_int_equal(mpi_library_of_maps(mpich, sizeof mpich - 1, soname, sizeof soname), MPI_LIBRARY_NONE);
    assert_int_equal(mpi_library_of_maps("", 0, soname, sizeof soname), MPI_LIBRARY_NONE);
    assert_int_equal(mpi_library_of_file("/nowhere", soname, sizeof soname), MPI_LIBRARY_NONE);
    /* this program, cut and damaged: never more than a no */
    scope_buffer bytes = {0};
    struct muster_error err = {0};
    char path[] = "/tmp/muster-mpi-XXXXXX";
    scope_close int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(io_read_file("/proc/self/exe", 1 << 26, &bytes, &err), 0);
    const size_t shown = bytes.length < 1 << 16 ? bytes.length : 1 << 16;
    unsigned seed = 1;
    for (int i = 0; i < 400; i++) {
        const size_t length = i < 100 ? (size_t)rand_r(&seed) % shown : shown;
        for (int k = 0; i >= 100 && k < 4; k++)
            bytes.data[rand_r(&seed) % 1024] = (char)rand_r(&seed);
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes.data, length, 0), (ssize_t)length);
        (void)mpi_library_of_file(path, soname, sizeof soname);
    }
    assert_int_equal(unlink(path), 0);
}

static void mappings(void **state)
{
    (void)state;
    int counts[1000];
    scope_buffer text = {0};
    for (int i = 0; i < 1000; i++)
        counts[i] = 8;
    assert_true(pmi_mapping(counts, 1000, &text));
    assert_string_equal(text.data, "(vector,(0,1000,8))");
    for (int i = 0; i < 1000; i++)
        counts[i] = 1 + i % 2;
    buffer_clear(&text);
    assert_false(pmi_mapping(counts, 1000, &text)); /* longer than a value */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes_meet),   cmocka_unit_test(requests_that_are_not_served),
        cmocka_unit_test(limits_of_keys),   cmocka_unit_test(broken_clients),
        cmocka_unit_test(broken_exchanges), cmocka_unit_test(libraries),
        cmocka_unit_test(mappings),         cmocka_unit_test(missing_ranks_of_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
