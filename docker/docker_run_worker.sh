#!/usr/bin/env bash
# Join a Potluck host from a container. The container dials out, so it publishes no port.
set -euo pipefail
image=${POTLUCK_IMAGE:-${IMAGE_NAME:-potluck}}
name=$(uname -n)
name=${POTLUCK_NAME:-${name%%.*}}
container=potluck-join

usage() {
  cat <<END
usage: docker_run_worker.sh LINE [OPTIONS OF potluck join]
  LINE is what potluck host prints, p1-...; '-' reads it from stdin, and POTLUCK_JOIN may hold it instead
  variables: POTLUCK_NAME (this machine's name; this computer's name by default), POTLUCK_IMAGE or IMAGE_NAME (potluck by default),
  POTLUCK_GPUS=all (hand the GPUs to the container)
END
}
fail() {
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 1
}

case "${1:-}" in
-h | --help) usage; exit ;;
p1-*) POTLUCK_JOIN=$1; shift ;;
-) IFS= read -rp 'Line p1-...: ' POTLUCK_JOIN; shift ;;
esac
[[ ${POTLUCK_JOIN:-} == p1-* ]] || { usage >&2; exit 2; }
# By the environment: what docker gets as an argument is in the list of processes.
export POTLUCK_JOIN POTLUCK_NAME=$name
command -v docker >/dev/null || fail "docker is not installed" "see https://docs.docker.com/engine/install"
docker image inspect "$image" >/dev/null 2>&1 ||
  fail "there is no image $image, or docker does not run" "docker build --file docker/Dockerfile --tag $image ."
! docker container inspect "$container" >/dev/null 2>&1 ||
  fail "the container $container exists already" "docker start $container, or for another line: docker rm --force $container"

gpus=()
[ -z "${POTLUCK_GPUS:-}" ] || gpus=(--gpus "$POTLUCK_GPUS")
docker run --detach --name "$container" --restart unless-stopped --shm-size 1g --stop-timeout 60 ${gpus[@]+"${gpus[@]}"} \
  --env POTLUCK_JOIN --env POTLUCK_NAME \
  --volume potluck-join-home:/home/potluck/.potluck --volume potluck-data:/data \
  "$image" join "$@"
echo "to watch:  docker logs --follow $container"
echo "to leave:  docker stop $container"
