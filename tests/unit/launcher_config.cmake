# The pure half of the launcher: command line, machine, worker command, report.
muster_test(launcher_config_test SOURCES launcher_config_test.c LINK muster_launcher)
muster_test(launcher_rdzv_conf_test SOURCES launcher_rdzv_conf_test.c LINK muster_launcher)
muster_test(launcher_place_test SOURCES launcher_place_test.c LINK muster_launcher)
muster_test(launcher_slurm_test SOURCES launcher_slurm_test.c LINK muster_launcher)
muster_test(launcher_machine_test SOURCES launcher_machine_test.c LINK muster_launcher)
muster_test(launcher_command_test SOURCES launcher_command_test.c LINK muster_launcher)
muster_test(launcher_report_test SOURCES launcher_report_test.c LINK muster_launcher)
