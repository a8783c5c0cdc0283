"""The pure files, and the tests that hold each of them: unit tests and the simulation, the quickest and most telling first.

A test is a name of ctest's, or a program of build/tests with arguments of its own."""

SIMULATE = ("simulation/simulate", "--seeds", "4000")

ROSTER = ("rendezvous_roster_walk_test", "rendezvous_roster_test", "rendezvous_roster_leave_test", "rendezvous_touch_test", "rendezvous_roster_join_test", "rendezvous_elastic_test", "rendezvous_elastic_server_test", "rendezvous_return_test",
          "rendezvous_backoff_test", "simulation_roster_traces", "simulation_server_return", "simulation_digests", "simulation_kept", SIMULATE)  # fmt: skip
CLIENT = ("rendezvous_walk_test", "rendezvous_client_test", "rendezvous_return_test", "simulation_roster_traces", "simulation_server_return",
          "simulation_digests", "simulation_kept", "rendezvous_silence_test", "rendezvous_handover_test", SIMULATE)  # fmt: skip
CONFIG = ("launcher_identity_walk_test", "launcher_config_walk_test", "launcher_config_test", "launcher_config_workers_test", "launcher_flag_command_test",
          "accelerate_test")
PLAN = ("plan_golden_test", "plan_access_test", "plan_emit_test", "plan_build_test", "plan_random_test", "plan_check_test")
DECIDE = ("nccl_decide_test", "nccl_values_test", "nccl_policy_test", "nccl_random_test", "launcher_tune_test")
LINES = ("launcher_walk_test", "launcher_log_parts_test", "launcher_line_test", "launcher_pump_test", "launcher_event_line_test")

# (files, tests)
TABLE = (
    (("rendezvous/roster/roster*.c", "rendezvous/roster/world.c"), ROSTER),
    (("rendezvous/client/client*.c",), CLIENT),
    (("rendezvous/client/connection.c",), ("rendezvous_parts_walk_test", "rendezvous_connection_test")),
    (("rendezvous/failure/failure*.c",), ("rendezvous_lines_walk_test", "rendezvous_walk_test", "rendezvous_failure_test", "rendezvous_wire_test", "launcher_report_test",
      "launcher_verdict_test", "rendezvous_roster_test", "simulation_digests")),
    (("rendezvous/store/store*.c",), ("store_walk_test", "store_test", "tcpstore_test")),
    (("rendezvous/tcpstore/tcpstore.c", "rendezvous/tcpstore/tcpstore_parser.c", "rendezvous/tcpstore/tcpstore_requests.c",
      "rendezvous/tcpstore/tcpstore_greeting.c"), ("store_walk_test", "tcpstore_test", "tcpstore_greeting_test", "store_test", "tcpstore_server_test")),
    (("rendezvous/wire/wire_*pack.c",), ("rendezvous_walk_test", "rendezvous_wire_test")),
    (("rendezvous/security/rejection_log.c", "rendezvous/security/zap.c"), ("rendezvous_parts_walk_test", "rendezvous_zap_test", "rendezvous_admission_test")),
    (("rendezvous/server/routes.c",), ("rendezvous_parts_walk_test", "rendezvous_routes_test")),
    (("launcher/policy/worker_group.c",), ("launcher_walk_test", "launcher_group_test", "launcher_verdict_test", "launcher_agent_parts_test", "simulation_digests", SIMULATE)),
    (("launcher/policy/server_choice.c",), ("launcher_server_choice_test", "simulation_digests", SIMULATE)),
    (("launcher/policy/hang.c", "launcher/policy/heartbeat.c"), ("launcher_walk_test", "launcher_heartbeat_test")),
    (("launcher/policy/stop_notice.c",), ("launcher_walk_test", "launcher_notice_test")),
    (("launcher/policy/job_state.c",), ("launcher_job_state_test",)),
    (("launcher/config/config*.c",), CONFIG),
    (("launcher/accelerate/accelerate_config.c", "launcher/accelerate/accelerate_sections.c", "launcher/accelerate/accelerate_keys.c"),
     ("accelerate_test",)),
    (("launcher/config/rdzv_conf.c",), ("launcher_rdzv_conf_test", *CONFIG)),
    (("proto/slurm.c", "launcher/config/node_identity*.c"), ("launcher_identity_walk_test", "slurm_test", "launcher_place_test", *CONFIG)),
    (("launcher/output/line.c", "launcher/output/log_filter.c", "launcher/output/log_record.c"), LINES),
    (("launcher/verdict/kernel_evidence.c",), ("launcher_verdict_test",)),
    (("launcher/verdict/report*.c",), ("launcher_walk_test", "launcher_report_test")),
    (("launcher/local/pod/quantity.c", "launcher/local/pod/env_map.c", "launcher/local/pod/pod_command.c",
      "launcher/local/manifest/pytorchjob_pods.c"), ("local_walk_test", "local_manifest_test", "launcher_local_env_test",
      "e2e_local_dry_run")),
    (("launcher/local/run/lifecycle.c", "launcher/local/run/conditions.c"), ("local_walk_test", "launcher_lifecycle_test", "launcher_local_env_test",
      "launcher_local_run_test")),
    (("runtime/plan/mesh.c", "runtime/plan/model.c", "runtime/plan/plan.c", "runtime/plan/plan_access.c", "runtime/plan/plan_edge.c",
      "runtime/plan/plan_emit.c", "runtime/plan/plan_gather.c", "runtime/plan/plan_group.c", "runtime/plan/plan_memory.c",
      "runtime/plan/plan_options.c", "runtime/plan/plan_reduce.c", "runtime/plan/plan_schedule.c", "runtime/plan/plan_steps.c", "runtime/plan/plan_update.c"), PLAN),
    (("runtime/nccl/decide/decide*.c", "runtime/nccl/decide/policy.c", "runtime/nccl/files/policy_read.c"), DECIDE),
    (("runtime/nccl/describe/pci.c", "runtime/nccl/describe/topology.c"), ("nccl_pci_test", "nccl_topology_test", "nccl_random_test")),
    (("runtime/train/lr.c",), ("train_lr_test",)),
    (("proto/base/knob.c", "proto/base/knob_args.c", "proto/base/text.c", "proto/base/text_list.c", "proto/base/buffer.c"),
     ("base_property_test", "base_knob_test", "base_knob_args_test", "base_text_test", "base_error_test", *CONFIG)),
)  # fmt: skip

BAR = 0.95  # for the mutants that are not equivalent
