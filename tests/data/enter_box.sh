#!/usr/bin/env bash
# enter_box.sh ROOT COMMAND…: runs COMMAND as process 1 of namespaces whose root is ROOT, with the
# host's /usr and /etc in it, read-only. A folder ROOT/.shims takes the place of /usr/local/bin; with a
# file ROOT/.no-python3 no python3 can be run.
set -euo pipefail
export BOX_ROOT=$1
shift
exec unshare --mount --pid --fork --kill-child -- bash -c '
set -euo pipefail
root=$BOX_ROOT
mount --make-rprivate /
mkdir -p "$root"/{usr,etc,proc,dev,tmp,root}
for name in bin sbin lib lib64; do
  if [[ -e /$name && ! -L $root/$name ]]; then ln -s "usr/$name" "$root/$name"; fi
done
mount --rbind /usr "$root/usr"
if [[ -d $root/.shims ]]; then mount --bind "$root/.shims" "$root/usr/local/bin"; fi
if [[ -e $root/.no-python3 ]]; then
  for python in "$root"/usr/bin/python3 "$root"/usr/local/bin/python3; do
    if [[ -e $python ]]; then mount --bind /dev/null "$python"; fi
  done
fi
mount -o remount,bind,ro "$root/usr"
mount --bind /etc "$root/etc"
mount -o remount,bind,ro "$root/etc"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
' bash "$@"
