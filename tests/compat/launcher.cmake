# The launcher under real PyTorch; skipped where there is none.
muster_script_test(compat_launcher_torch COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/ddp_torch_test.py LABELS compat
  TIMEOUT 600)
muster_script_test(compat_real_scripts COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/real_scripts_torch_test.py LABELS compat
  TIMEOUT 900)
