#!/usr/bin/env bash
# deb_stage.sh STAGE BUILD VERSION [EMULATOR...] - what a Debian package has beside the installed files: manual pages, completions, changelog and
# copyright; and where programs look for modules.
set -euo pipefail
stage=$1/usr build=$2 version=$3
emulator=("${@:4}") # of programs for another machine
source=$(cd "$(dirname "$0")/.." && pwd)
muster() { "${emulator[@]}" "$build/bin/muster" "$@"; }
train() { "${emulator[@]}" "$build/bin/muster-train" "$@"; }

# modules are in a folder of the package's own; other libraries are the system's
patchelf --set-rpath /usr/lib/muster "$stage/bin/muster-train"
for file in "$stage"/lib/lib*.so.*; do
  [ -L "$file" ] || patchelf --set-rpath /usr/lib/muster "$file"
done
patchelf --remove-rpath "$stage"/lib/muster/*.so

mkdir -p "$stage/share/man/man1" "$stage/share/bash-completion/completions" "$stage/share/zsh/vendor-completions"
man_page() { gzip -9n >"$stage/share/man/man1/$1.1.gz"; } # NAME, the page on standard input
muster man | man_page muster
for name in $(muster man | sed -n '/^.SH SUBCOMMANDS/,/^.SH EXIT/s/^\.B //p' | sed 's/\\//g'); do
  muster man "$name" | man_page "muster-$name"
done
train --man | man_page muster-train
muster completion bash >"$stage/share/bash-completion/completions/muster"
train --completion=bash >"$stage/share/bash-completion/completions/muster-train"
muster completion zsh >"$stage/share/zsh/vendor-completions/_muster"
train --completion=zsh >"$stage/share/zsh/vendor-completions/_muster-train"

docs=$stage/share/doc/muster
mkdir -p "$docs"
gzip -9n >"$docs/changelog.gz" <<END
muster ($version) unstable; urgency=medium

  * This version of muster, packaged by CPack.

 -- The muster maintainers <muster@localhost>  $(LC_ALL=C date -uR -d @0)
END
cat >"$docs/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: muster

Files: *
Copyright: 2026 The muster maintainers
License: Apache-2.0
 On Debian systems the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
END
mkdir -p "$stage/share/lintian/overrides"
cat >"$stage/share/lintian/overrides/muster" <<END
# Linked statically, so that a program that may need it starts no slower.
muster: embedded-library libyaml [usr/bin/muster]
muster: embedded-library libyaml [usr/bin/muster-train]
muster: embedded-library libyaml [usr/lib/libmuster.so.$version]
muster: embedded-library libpng [usr/bin/muster-train]
muster: embedded-library zlib [usr/bin/muster-train]
# One package for programs, library and headers: it is installed into images, not built upon by a distribution.
muster: package-name-doesnt-match-sonames libmuster0
muster: link-to-shared-library-in-wrong-package usr/lib/libmuster.so.$version [usr/lib/libmuster.so]
muster: pkg-config-unavailable-for-cross-compilation [usr/lib/pkgconfig/muster.pc]
# CPack writes them, whatever the trigger does.
muster: maintscript-calls-ldconfig [postinst]
muster: maintscript-calls-ldconfig [postrm]
# Packages of a checkout have no address.
muster: bogus-mail-host Maintainer muster@localhost
muster: bogus-mail-host-in-debian-changelog muster@localhost (for version $version) [usr/share/doc/muster/changelog.gz:1]
END
find "$stage" -type d -exec chmod 755 {} +
find "$stage" -type f ! -perm /111 -exec chmod 644 {} +
