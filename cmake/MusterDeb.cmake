# `cpack --config build/CPackConfig.cmake`: muster_<version>_<arch>.deb, made of what `cmake --install` installs.
# packages/deb_stage.sh adds manual pages, completions, changelog and copyright to the staged files.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME muster)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The muster maintainers <muster@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "launcher and runtime for distributed training, in C")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "It starts, watches and restarts distributed training: a replacement for
PyTorch's torchrun with its flags, environment and log directories, which
starts in milliseconds and reports which rank failed first and why.
.
With it come libmuster, a training runtime that shards parameters over ranks,
and muster-train, which trains GPT-2 and Llama models without Python.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/packages/deb_depends.cmake)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_MUSTER_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT} -E LD_LIBRARY_PATH=/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
  set(CPACK_MUSTER_OTHER ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_SYSROOT})
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, libexttextcat-2.0-0, libexttextcat-data")
file(WRITE ${CMAKE_BINARY_DIR}/packages/control/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packages/control/triggers)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packages/deb_stage.cmake)
muster_packs_for_earlier_glibc()
set(CPACK_MUSTER_BUILD ${CMAKE_BINARY_DIR})
include(CPack)
