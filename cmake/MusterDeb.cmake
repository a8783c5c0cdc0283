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
if(CMAKE_CROSSCOMPILING) # dpkg-shlibdeps knows this machine's packages alone
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/packages/deb_depends.cmake)
  set(CPACK_MUSTER_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
  set(CPACK_MUSTER_SYSROOT ${CMAKE_SYSROOT})
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# opened by name where they are needed, so that the linker does not know of them
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libzmq5, libsodium23, libopenblas0-openmp") # the build of OpenBLAS that has no threads of its own
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libmicrohttpd12, libgnutls30, libncursesw6, libunistring2")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, libexttextcat-2.0-0, libexttextcat-data")
file(WRITE ${CMAKE_BINARY_DIR}/packages/control/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packages/control/triggers)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packages/deb_stage.cmake)
set(CPACK_MUSTER_SOURCE ${CMAKE_SOURCE_DIR})
set(CPACK_MUSTER_BUILD ${CMAKE_BINARY_DIR})
include(CPack)
