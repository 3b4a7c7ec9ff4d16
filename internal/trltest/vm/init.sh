#!/guest/bin/busybox sh
# shellcheck shell=dash
# The first process of a guest: it prepares the system, runs /guest/command, and
# reports its exit status on the second serial port. The kernel has the first.

PATH=/guest/bin:/bin
export PATH

# On the image's own root, pivot_root fails. The kernel calls this script there; it
# calls itself again in the directory that it has made the root.
if [ "$1" != again ]; then
  cd /guest || exit
  busybox mount -o bind /guest /guest
  cd /guest || exit # the mount, not the directory below it
  busybox mount -o move . /
  exec busybox chroot . /bin/busybox sh /init again
fi

mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t securityfs -o nosuid,nodev,noexec securityfs /sys/kernel/security
mount -t devtmpfs -o nosuid devtmpfs /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o nosuid,noexec,gid=0,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /dev/shm
mount -t mqueue -o nosuid,nodev,noexec mqueue /dev/mqueue
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /tmp
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mkdir -p /home/guest /run/user/1000
chown guest:guest /home/guest /run/user/1000
chmod 700 /run/user/1000
ip link set lo up
hostname guest

# As systemd mounts it, with every controller.
group=/sys/fs/cgroup
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 $group
enable_controllers() { # GROUP
  sed 's/^/+/; s/ / +/g' "$1/cgroup.controllers" >"$1/cgroup.subtree_control"
}
enable_controllers $group

read -r _ user token <<COMMAND
$(sed -n 2p /guest/command)
COMMAND

stty -F /dev/ttyS1 raw
# The tests write to a pipe, as they do under go test.
mkfifo /run/output
cat </run/output >/dev/ttyS1 &
port=$!
echo "$token begin" >/dev/ttyS1
if [ "$user" = root ]; then
  /guest/command </dev/null >/run/output 2>&1
else
  # A user's own cgroup, with the files that the kernel's documentation lists. A group
  # with controllers has no processes, so the tests are in a child.
  mkdir -p "$group/$user/tests"
  enable_controllers "$group/$user"
  for file in . cgroup.procs cgroup.threads cgroup.subtree_control; do
    chown "$user:$user" "$group/$user/$file" "$group/$user/tests/$file"
  done
  (
    sh -c 'echo $PPID' >"$group/$user/tests/cgroup.procs"
    exec su -s /bin/sh "$user" -c "exec /guest/command"
  ) </dev/null >/run/output 2>&1
fi
status=$?
# A process that the tests left behind may hold the pipe open.
(sleep 2; kill "$port") &
wait "$port"
printf '\n%s end %s\n' "$token" "$status" >/dev/ttyS1
poweroff -f
