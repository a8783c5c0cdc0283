/* launcher_machine_test.c - GPUs from device files and
 * CUDA_VISIBLE_DEVICES. */
#include "launcher/host/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static void visible_gpus(void **state)
{
    (void)state;
    assert_int_equal(machine_visible_gpus(4, NULL), 4);
    assert_int_equal(machine_visible_gpus(4, ""), 0);
    assert_int_equal(machine_visible_gpus(4, "0,2"), 2);
    assert_int_equal(machine_visible_gpus(4, "0, 2 ,3"), 3);
    assert_int_equal(machine_visible_gpus(4, "0,1,0"), 0); /* as CUDA has it */
    assert_int_equal(machine_visible_gpus(4, "-1"), 0);
    assert_int_equal(machine_visible_gpus(4, "1,-1,2"), 1);
    assert_int_equal(machine_visible_gpus(2, "1,7,0"), 1);
    assert_int_equal(machine_visible_gpus(2, "GPU-5ebe9f43,GPU-aaaa"), 2);
    assert_int_equal(machine_visible_gpus(0, "0,1"), 0);
}

static char folder[FOLDER_PATH];

static void put(const char *path, const char *text)
{
    char full[512], parent[512];
    (void)snprintf(full, sizeof full, "%s/%s", folder, path);
    (void)snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = 0;
    struct muster_error err = {0};
    if (io_make_directories(parent, 0755, &err) < 0 ||
        io_write_file_atomic(full, text, strlen(text), 0644, &err) < 0)
        fail_msg("%s", err.text);
}

static void device_files(void **state)
{
    (void)state;
    put("dev/nvidia0", "");
    put("dev/nvidia12", "");
    put("dev/nvidiactl", "");
    put("dev/nvidia-uvm", "");
    put("dev/nvidia", "");
    char root[512];
    (void)snprintf(root, sizeof root, "%s/dev", folder);
    assert_int_equal(machine_count_gpus(root), 2);
    assert_int_equal(machine_count_gpus("/nonexistent"), 0);
}

static void this_machine_has_a_core(void **state)
{
    (void)state;
    struct machine machine = {0};
    machine_read("", &machine);
    assert_true(machine.cores >= 1 && machine.gpus == 0);
    assert_true(machine.random[0] != 0 || machine.random[1] != 0);
}

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "machine");
}

static int remove_folder(void **state)
{
    (void)state;
    return folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(visible_gpus),
        cmocka_unit_test(device_files),
        cmocka_unit_test(this_machine_has_a_core),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
