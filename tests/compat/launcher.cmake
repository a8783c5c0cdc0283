# The launcher under real PyTorch; skipped where there is none.
muster_script_test(compat_launcher_torch COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/ddp_torch_test.py LABELS compat)
muster_script_test(compat_real_scripts COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/real_scripts_torch_test.py LABELS compat)
muster_script_test(compat_manifests_run COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/manifests_run_test.py one-node LABELS compat)
muster_script_test(compat_manifests_run_all COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/manifests_run_test.py master-workers elastic
  LABELS full)
muster_script_test(compat_gloo_interface COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/gloo_interface_test.py LABELS compat)
