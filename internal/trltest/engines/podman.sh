#!/bin/sh
# podman, with the cgroup of this test process for its containers: no file of its
# configuration can name one.
case ${1-} in
  run | create)
    verb=$1
    shift
    exec '@PODMAN@' "$verb" --cgroup-parent '@CGROUP@' "$@"
    ;;
esac
exec '@PODMAN@' "$@"
