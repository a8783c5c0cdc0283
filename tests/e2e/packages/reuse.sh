#!/bin/sh
# reuse.sh LIST FOLDER COMPILER [ARGUMENT...]: a compiler launcher. An object that LIST names is copied from FOLDER, the build
# folder that has it already, and depends on that file alone; any other is compiled.
list=$1 folder=$2
shift 2
object= depfile= before=
for word; do
  case $before in
    -o) object=$word ;;
    -MF) depfile=$word ;;
  esac
  before=$word
done
if [ -n "$depfile" ] && grep -qxF -e "$object" "$list" 2>/dev/null; then
  cp "$folder/$object" "$object" || exit 1
  printf '%s: %s\n' "$object" "$(printf '%s' "$folder/$object" | sed 's/ /\\ /g')" >"$depfile"
  exit
fi
exec "$@"
