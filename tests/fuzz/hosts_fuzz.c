/* hosts_fuzz.c - arbitrary bytes as a host file, as --hosts, and as the orders of a starting host: a list
 * whose hosts ssh can be given, orders that are written as they were read, or an error. */
#include <stdlib.h>
#include <string.h>

#include "launcher/hosts/hosts_message.h"
#include "proto/base/address.h"
#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_list(const struct host_list *list)
{
    for (int i = 0; i < list->count; i++) {
        const struct host_entry *host = &list->entries[i];
        must(*host->name && *host->name != '-' && strlen(host->name) <= HOST_NAME_LIMIT);
        must(!strpbrk(host->name, " \t\r\n,;'\"$`\\/[]") && *host_entry_address(host));
        must(!strchr(host->name, ':') || address_is_six(host_entry_address(host)));
        must(host->slots >= 0 && host->slots <= HOST_SLOTS_LIMIT);
    }
}

static void read_lists(const char *data, size_t size)
{
    struct host_list list = {0};
    struct muster_error err = {0};
    must(host_list_parse_file("hosts", data, size, &list, &err) == 0 ? list.count > 0 : *err.text != 0);
    check_list(&list);
    host_list_free(&list);
    char *text = mem_strndup(data, size);
    err = (struct muster_error){0};
    must(host_list_parse(text, &list, &err) == 0 ? list.count > 0 : *err.text != 0);
    check_list(&list);
    host_list_free(&list);
    mem_free(text);
}

static void read_orders(const char *data, size_t size)
{
    struct hosts_message message;
    struct muster_error err = {0};
    struct buffer again = {0};
    size_t used = 0, all = 0;
    int state = hosts_message_read(data, size, &message, &used, &err);
    must(state >= 0 || *err.text);
    if (state > 0) {
        must(used <= size);
        check_list(&message.hosts);
        must(hosts_message_write(&message, &again) == 0);
        struct hosts_message copy;
        must(hosts_message_read(again.data, again.length, &copy, &all, &err) == 1 && all == again.length);
        must(copy.argv.count == message.argv.count && copy.hosts.count == message.hosts.count);
        hosts_message_free(&copy);
    }
    buffer_free(&again);
    hosts_message_free(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_lists((const char *)data, size);
    read_orders((const char *)data, size);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char file[] = "# hosts\nnode-1 slots=8\nroot@node2 slots=4 max_slots=8\n10.0.0.3:2\nnode4\n";
    static const char flag[] = "a:8,b:8,user@c,root@[fd00::1]:8,[::]";
    static const char orders[] =
        "muster-hosts-1 57\nR0\0Sx\0D/\0Crun\0Pssh\0H2 a\0H0 root@b\0EA=b\0Atrain.py\0A--x\0........";
    const struct fuzz_seed seeds[] = {
        {file, sizeof file - 1}, {flag, sizeof flag - 1}, {orders, sizeof orders - 1}};
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}
#endif
