# The parts of the agent: each alone, without a world.
muster_test(launcher_group_test SOURCES launcher_group_test.c LINK muster_launcher)
muster_test(launcher_line_test SOURCES launcher_line_test.c LINK muster_launcher)
muster_test(launcher_spawn_test SOURCES launcher_spawn_test.c LINK muster_launcher)
muster_test(launcher_guardian_test SOURCES launcher_guardian_test.c LINK muster_launcher)
muster_test(launcher_pump_test SOURCES launcher_pump_test.c LINK muster_launcher)
muster_test(launcher_agent_parts_test SOURCES launcher_agent_parts_test.c LINK muster_launcher)
muster_test(launcher_signal_list_test SOURCES launcher_signal_list_test.c LINK muster_launcher)
muster_test(launcher_heartbeat_test SOURCES launcher_heartbeat_test.c LINK muster_launcher)
